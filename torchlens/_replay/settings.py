"""The settings of torch that a call was recorded under, put in force again."""

from __future__ import annotations

import random
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch

from torchlens._records import Context


@contextmanager
def as_recorded(context: Context) -> Generator[None]:
    """Run the body under the grad mode, autocast and defaults of a recorded call."""
    dtype = torch.get_default_dtype()
    with ExitStack() as settings:
        settings.enter_context(torch.inference_mode(context.inference_mode))
        settings.enter_context(torch.set_grad_enabled(context.grad_enabled))
        for device in _autocast_devices(context):
            enabled = device in context.autocast
            cast = getattr(torch, context.autocast[device]) if enabled else None
            settings.enter_context(torch.autocast(device, dtype=cast, enabled=enabled))
        if context.default_device != str(torch.get_default_device()):
            settings.enter_context(torch.device(context.default_device))
        settings.callback(torch.set_default_dtype, dtype)
        torch.set_default_dtype(getattr(torch, context.default_dtype))
        yield


def _autocast_devices(context: Context) -> list[str]:
    """The devices whose autocast must be switched on or off."""
    return [
        device
        for device in torch._C._autocast_supported_devices()
        if device in context.autocast or torch.is_autocast_enabled(device)
    ]


@contextmanager
def generators_at(states: Sequence[tuple[str, torch.Tensor]], given: Any) -> Generator[None]:
    """Run the body with random generators in recorded states, and give them their own back.

    `given` is the generator that the call was handed, if any; otherwise the default ones are meant.
    """
    saved: list[tuple[torch.Generator, torch.Tensor]] = []
    try:
        for device, state in states:
            generator = given if isinstance(given, torch.Generator) else _default_generator(device)
            saved.append((generator, generator.get_state()))
            generator.set_state(state)
        yield
    finally:
        for generator, state in saved:
            generator.set_state(state)


@contextmanager
def untouched_generators() -> Generator[None]:
    """Run the body and give torch's, Python's and numpy's generators back as they were."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    state, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        random.setstate(state)
        np.random.set_state(numpy)


def _default_generator(device: str) -> torch.Generator:
    if device == "cpu":
        return torch.default_generator
    return torch.cuda.default_generators[torch.device(device).index or 0]
