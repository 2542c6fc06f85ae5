"""What a caller may choose about a capture."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from torchlens.errors import OptionError

Fused: TypeAlias = Literal["keep", "expand"]
_FUSED: tuple[Fused, ...] = ("keep", "expand")
_FLAGS = ("witness", "inference_only", "detach_saved_activations", "backward_ready", "copy")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureOptions:
    """Options of one capture.

    `seed` is what torch, `random` and numpy are seeded with before the forward; their state is given back
    afterwards. Without it `trace` derives one from torch's state and a `capture` block seeds nothing.
    `max_copied` bounds the bytes copied because a kept value was about to be overwritten in place; older
    values beyond it raise `OverwrittenError` when they are read.

    `inference_only=True` runs the forward under `torch.no_grad()`: the output has no autograd graph.
    `detach_saved_activations=True` leaves the forward its graph and keeps values that are no part of it, so
    that the trace does not keep it alive. `backward_ready=True` declares a training capture: each kept value
    stays part of the graph, also as a copy and after something was written over it.

    `copy=True` keeps a copy of each value instead of the tensor: what is written after the run, or beside
    torch, cannot reach it. `output_device="cpu"` keeps values there, copied if they lie elsewhere.

    `fused="keep"` leaves torch the fused attention kernels that it takes without a capture: one boundary op
    each, and the same numbers. `"expand"` makes torch take the path written in Python, so that every op and
    module call inside is seen; outputs may then differ in the last bits, and the trace notes where.
    `witness=True` counts every operator that torch dispatches and accounts for it, in
    `trace.provenance.census`; work that torch tells no mode of (a TorchScript function, a C++ extension)
    becomes one op. It makes a capture slower by a factor.

    >>> CaptureOptions(seed=0).seed
    0
    """

    seed: int | None = None
    max_copied: int | None = None
    fused: Fused = "keep"
    witness: bool = False
    inference_only: bool = False
    detach_saved_activations: bool = False
    output_device: str | None = None
    backward_ready: bool = False
    copy: bool = False

    def __post_init__(self) -> None:
        self._check_numbers()
        for name in _FLAGS:
            value: object = getattr(self, name)
            if type(value) is not bool:
                raise OptionError(f"{name}={value!r} is a {type(value).__name__}; give True or False")
        if self.fused not in _FUSED:
            raise OptionError(
                f"fused={self.fused!r} is no way to treat fused kernels; give 'keep' to run them as they run "
                "without a capture, or 'expand' to step inside"
            )
        self._check_device()
        for one, other, why in self._contradictions():
            raise OptionError(f"{one} and {other} contradict each other: {why}; leave one of them out")

    def _check_numbers(self) -> None:
        for name, value in (("seed", self.seed), ("max_copied", self.max_copied)):
            if value is not None and type(value) is not int:
                raise OptionError(f"{name}={value!r} is a {type(value).__name__}; give an int, or None")
        if self.seed is not None and not 0 <= self.seed < 2**63:
            raise OptionError(f"seed={self.seed} is not in 0..2**63-1; give a non-negative integer")
        if self.max_copied is not None and self.max_copied < 0:
            raise OptionError(
                f"max_copied={self.max_copied} is negative; give a number of bytes, or None for no bound"
            )

    def _check_device(self) -> None:
        device = self.output_device
        if device is None:
            return
        object.__setattr__(self, "output_device", str(device))  # a torch.device will do as well
        if not re.fullmatch(r"[a-z]+(:\d+)?", str(device)) or str(device).startswith("meta"):
            raise OptionError(
                f"output_device={device!r} is no device that values can be kept on; give one such as 'cpu' "
                "or 'cuda:0'"
            )

    def _contradictions(self) -> Iterator[tuple[str, str, str]]:
        if self.backward_ready and self.inference_only:
            yield (
                "backward_ready",
                "inference_only",
                "under no_grad there is nothing to go backward",
            )
        if self.backward_ready and self.detach_saved_activations:
            yield "backward_ready", "detach_saved_activations", "the kept values are part of the graph or not"
        if self.backward_ready and self.max_copied is not None:
            yield "backward_ready", "max_copied", "what is written over must be copied to stay in the graph"
        if self.copy and self.max_copied is not None:
            yield (
                "copy",
                "max_copied",
                "copies of every value are kept, so none is made before a write",
            )
