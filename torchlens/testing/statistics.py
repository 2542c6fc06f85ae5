"""What a snapshot says of a layer's values: a few statistics of all its passes, as text of six digits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import hypot, inf, isfinite, sqrt
from typing import Final, TypeAlias, TypeVar

import torch
from torch import Tensor

from torchlens._values.tally import Tally, pieces_of
from torchlens.errors import OptionError
from torchlens.validation.comparison import parts_of

Magnitude = TypeVar("Magnitude", float, Tensor)
StatisticTexts: TypeAlias = Mapping[str, str]
"""Name to text; the values decide which there are of `min` ... `norm`, `sum`, `true`, `kept` ..."""

NUMERIC: Final = ("min", "max", "mean", "std", "norm", "sum")
"""Those that are held against a tolerance; the others are the same or not."""
_RTOL: Final = {
    "float64": 1e-6,
    "complex128": 1e-6,
    "float32": 1e-4,
    "complex64": 1e-4,
    "float16": 5e-3,
    "complex32": 5e-3,
    "bfloat16": 3e-2,
}
"""What kernels of other machines and releases differ by in deep models, with room to spare."""
_RTOL_OF_SMALL_FLOATS: Final = 0.1
_NOISE: Final = 1e-7
"""A mean or deviation this small beside the largest magnitude is rounding, and printed as 0."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far values may be from a snapshot's: `atol` plus `rtol` of what they are compared with."""

    rtol: float | None = None
    """None: by dtype; 0 for integers and booleans."""
    atol: float | None = None

    def __post_init__(self) -> None:
        for name, given in (("rtol", self.rtol), ("atol", self.atol)):
            if given is not None and not (isfinite(given) and given >= 0):
                raise OptionError(f"{name}={given!r} is no tolerance; give a finite number, 0 or above")

    @property
    def is_given(self) -> bool:
        """Whether the caller said anything of it."""
        return self.rtol is not None or self.atol is not None

    def allowed(self, magnitude: Magnitude, *dtypes: str) -> Magnitude:
        """How far from a number, or numbers, of this magnitude another may be."""
        rtol = max(map(_rtol_of, dtypes), default=0.0) if self.rtol is None else self.rtol
        return rtol * magnitude + (self.atol or 0.0)


def _rtol_of(dtype: str) -> float:
    return _RTOL.get(dtype, _RTOL_OF_SMALL_FLOATS if dtype.startswith("float") else 0.0)


def statistic_texts(values: Iterable[Tensor | None]) -> StatisticTexts:
    """The statistics of the passes of one layer, taken together; None stands for a value that is not there.

    Complex numbers count as two real ones, and a sparse or quantized tensor as the numbers that make it up.
    NaN and infinities are counted, and left out of the rest.
    """
    tally = _PassTally()
    total = kept = 0
    for value in values:
        total += 1
        if value is not None:
            kept += 1
            for part in parts_of(value.detach()):
                tally.add(part)
    found = dict(tally.texts()) if kept else {}
    return found if kept == total else {**found, "kept": f"{kept}/{total}"}


@dataclass(slots=True)
class _PassTally:
    """What was seen of numbers, gathered tensor by tensor: integers and booleans exactly."""

    floats: Tally = field(default_factory=Tally)
    whole_bounds: list[int] = field(default_factory=list[int])
    """The least and greatest of each piece."""
    whole_sum: int | None = None
    true: int = 0
    booleans: int | None = None

    def add(self, part: Tensor) -> None:
        if part.dtype is torch.bool:
            self.true += int(part.sum())
            self.booleans = (self.booleans or 0) + part.numel()
        elif part.is_floating_point() or part.is_complex():
            self.floats.add((torch.view_as_real(part) if part.is_complex() else part).reshape(-1))
        else:
            for piece in pieces_of(part.reshape(-1)):
                wide = piece.long()
                self.whole_bounds += map(int, wide.aminmax())
                self.whole_sum = (self.whole_sum or 0) + int(wide.sum())

    def texts(self) -> Iterator[tuple[str, str]]:
        floats = self.floats
        if floats.finite:
            noise = _NOISE * max(abs(floats.low), abs(floats.high))
            yield "min", _number(floats.low)
            yield "max", _number(floats.high)
            yield "mean", _number(floats.mean if abs(floats.mean) > noise else 0.0)
            yield "std", _number(floats.spread if floats.spread > noise else 0.0)
            yield "norm", _number(sqrt(floats.finite) * hypot(floats.spread, floats.mean))
        elif self.whole_bounds:
            yield "min", str(min(self.whole_bounds))
            yield "max", str(max(self.whole_bounds))
        if self.whole_sum is not None:
            yield "sum", str(self.whole_sum)
        if self.booleans is not None:
            yield "true", f"{self.true}/{self.booleans}"
        infinite = floats.positive_infinity + floats.negative_infinity
        yield from ((name, str(count)) for name, count in (("nan", floats.nan), ("inf", infinite)) if count)
        if not floats.count and self.whole_sum is None and self.booleans is None:
            yield "elements", "0"


def _number(value: float) -> str:
    text = f"{value:.6g}"
    return "0" if text == "-0" else text


def _distance(before: str, now: str) -> float:
    """How far two statistics are apart: of integers exactly, which float64 may not tell apart."""
    try:
        return float(abs(int(now) - int(before)))
    except (ValueError, OverflowError):
        return abs(float(now) - float(before))


def difference_of(
    expected: StatisticTexts, found: StatisticTexts, dtypes: Iterable[str], tolerance: Tolerance
) -> str | None:
    """What sets two layers' statistics apart, the furthest first; None if all are within the tolerance.

    A statistic may be off by the tolerance's part of the largest magnitude among the expected values: the
    mean of a normalized layer is 0 but for rounding, and relative to itself rounding is large.
    """
    kinds = list(dtypes)
    scale = max((abs(float(expected[name])) for name in ("min", "max") if name in expected), default=0.0)
    apart: list[tuple[float, str, str]] = []
    for name in dict.fromkeys([*expected, *found]):
        before, now = expected.get(name, "none"), found.get(name, "none")
        if before == now:
            continue
        if "none" in (before, now) or name not in NUMERIC:
            apart.append((inf, name, f"{name} {now} instead of {before}"))
            continue
        distance = _distance(before, now)
        room = tolerance.allowed(max(scale, abs(float(before))), *kinds)
        if not distance <= room:
            text = f"{name} {now} instead of {before}, tolerance {room:.2g}"
            apart.append((distance / room if room else inf, name, text))
    if not apart:
        return None
    apart.sort(key=lambda entry: -entry[0])  # which leaves those alike in their order
    (_, _, text), *others = apart
    return text + (f"; {', '.join(name for _, name, _ in others)} too" if others else "")
