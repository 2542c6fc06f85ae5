"""The random generators a run may draw from: seeded before it, restored after it."""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch

from torchlens._unseen import unseen


def derived_seed() -> int:
    """A seed that follows from the caller's generator state and leaves that state alone."""
    with unseen():
        state = torch.get_rng_state().numpy().tobytes()
    return int.from_bytes(hashlib.blake2b(state, digest_size=4).digest(), "little")


@contextmanager
def seeded(seed: int | None) -> Generator[None]:
    """Run the body from `seed` and give every generator its state back; with None, do neither.

    Generators: torch's on the CPU and on each CUDA device if CUDA is in use, Python's, numpy's if imported.
    """
    if seed is None:
        yield
        return
    saved = _states()
    try:
        _seed_all(seed)
        yield
    finally:
        _restore(saved)


def generator_states(generator: torch.Generator | None) -> list[tuple[str, torch.Tensor]]:
    """(device, state) of the generators that a call may draw from: the given one, or the default ones."""
    if generator is not None:
        return [(str(generator.device), generator.get_state())]
    states = [("cpu", torch.get_rng_state())]
    if _cuda_in_use():
        device = torch.cuda.current_device()
        states.append((f"cuda:{device}", torch.cuda.get_rng_state(device)))
    return states


def _cuda_in_use() -> bool:
    return torch.cuda.is_initialized()  # never true where CUDA is not available; asking for that is slow


def _states() -> tuple[Any, ...]:
    numpy = sys.modules.get("numpy")
    return (
        torch.get_rng_state(),
        torch.cuda.get_rng_state_all() if _cuda_in_use() else None,
        random.getstate(),
        numpy.random.get_state() if numpy else None,
    )


def _seed_all(seed: int) -> None:
    torch.default_generator.manual_seed(seed)
    if _cuda_in_use():
        torch.cuda.manual_seed_all(seed)
    random.seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed % 2**32)


def _restore(saved: tuple[Any, ...]) -> None:
    cpu, cuda, python, numpy_state = saved
    torch.set_rng_state(cpu)
    if cuda is not None:
        torch.cuda.set_rng_state_all(cuda)
    random.setstate(python)
    if numpy_state is not None:
        sys.modules["numpy"].random.set_state(numpy_state)
