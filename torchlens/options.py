"""What a caller may choose about a capture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from torchlens.errors import OptionError

Fused: TypeAlias = Literal["keep", "expand"]
_FUSED: tuple[Fused, ...] = ("keep", "expand")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureOptions:
    """Options of one capture.

    `seed` is what torch, `random` and numpy are seeded with before the forward; their state is given back
    afterwards. Without it `trace` derives one from torch's state and a `capture` block seeds nothing.
    `max_copied` bounds the bytes copied because a kept value was about to be overwritten in place; older
    values beyond it raise `OverwrittenError` when they are read.
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

    def __post_init__(self) -> None:
        for name, value in (("seed", self.seed), ("max_copied", self.max_copied)):
            if value is not None and type(value) is not int:
                raise OptionError(f"{name}={value!r} is a {type(value).__name__}; give an int, or None")
        if self.seed is not None and not 0 <= self.seed < 2**63:
            raise OptionError(f"seed={self.seed} is not in 0..2**63-1; give a non-negative integer")
        if self.max_copied is not None and self.max_copied < 0:
            raise OptionError(
                f"max_copied={self.max_copied} is negative; give a number of bytes, or None for no bound"
            )
        if type(self.witness) is not bool:
            raise OptionError(
                f"witness={self.witness!r} is a {type(self.witness).__name__}; give True or False"
            )
        if self.fused not in _FUSED:
            raise OptionError(
                f"fused={self.fused!r} is no way to treat fused kernels; give 'keep' to run them as they run "
                "without a capture, or 'expand' to step inside"
            )
