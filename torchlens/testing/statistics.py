"""What a snapshot says of a layer's values: a few statistics of all its passes, as text of six digits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf, isfinite, sqrt
from typing import Final, TypeAlias, TypeVar

import torch
from torch import Tensor

from torchlens.errors import OptionError
from torchlens.validation.comparison import parts_of

Magnitude = TypeVar("Magnitude", float, Tensor)
Statistics: TypeAlias = Mapping[str, str]
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


def statistics_of(values: Iterable[Tensor | None]) -> Statistics:
    """The statistics of the passes of one layer, taken together; None stands for a value that is not there.

    Complex numbers count as two real ones, and a sparse or quantized tensor as the numbers that make it up.
    NaN and infinities are counted, and left out of the rest.
    """
    tally = _Tally()
    total = kept = 0
    for value in values:
        total += 1
        if value is not None:
            kept += 1
            for part in parts_of(value.detach()):
                tally.add(part)
    found = dict(tally.statistics()) if kept else {}
    return found if kept == total else {**found, "kept": f"{kept}/{total}"}


@dataclass(slots=True)
class _Tally:
    """What was seen of numbers, gathered tensor by tensor."""

    count: int = 0
    """Of finite numbers that are no integers."""
    mean: float = 0.0
    deviations: float = 0.0
    """Sum of their squared distances from the mean."""
    nans: int = 0
    infinities: int = 0
    bounds: list[float] = field(default_factory=list[float])
    """The least and greatest of each tensor."""
    whole_bounds: list[int] = field(default_factory=list[int])
    whole_sum: int | None = None
    true: int = 0
    booleans: int | None = None

    def add(self, part: Tensor) -> None:
        if part.dtype is torch.bool:
            self.true += int(part.sum())
            self.booleans = (self.booleans or 0) + part.numel()
        elif part.is_floating_point() or part.is_complex():
            self._add_floats(part)
        elif part.numel():
            wide = part.cpu().long()
            self.whole_bounds += map(int, wide.aminmax())
            self.whole_sum = (self.whole_sum or 0) + int(wide.sum())

    def _add_floats(self, part: Tensor) -> None:
        wide = (torch.view_as_real(part) if part.is_complex() else part).cpu().to(torch.float64).flatten()
        if not wide.numel():
            return
        low, high = map(float, wide.aminmax())
        if not (isfinite(low) and isfinite(high)):  # NaN is the least and the greatest
            self.nans += int(wide.isnan().sum())
            self.infinities += int(wide.isinf().sum())
            wide = wide[wide.isfinite()]
            if not wide.numel():
                return
            low, high = map(float, wide.aminmax())
        self.bounds += [low, high]
        self._pool(wide.numel(), *map(float, torch.var_mean(wide, correction=0)))

    def _pool(self, count: int, variance: float, mean: float) -> None:
        """Take the numbers of one more tensor in, by what is known of them."""
        shift, self.count = mean - self.mean, self.count + count
        self.mean += shift * count / self.count
        self.deviations += count * (variance + shift**2 * (1 - count / self.count))

    def statistics(self) -> Iterator[tuple[str, str]]:
        if self.bounds:
            low, high = min(self.bounds), max(self.bounds)
            noise = _NOISE * max(abs(low), abs(high))
            spread = sqrt(self.deviations / self.count)
            yield "min", _number(low)
            yield "max", _number(high)
            yield "mean", _number(self.mean if abs(self.mean) > noise else 0.0)
            yield "std", _number(spread if spread > noise else 0.0)
            yield "norm", _number(sqrt(self.deviations + self.count * self.mean**2))
        elif self.whole_bounds:
            yield "min", str(min(self.whole_bounds))
            yield "max", str(max(self.whole_bounds))
        if self.whole_sum is not None:
            yield "sum", str(self.whole_sum)
        if self.booleans is not None:
            yield "true", f"{self.true}/{self.booleans}"
        counts = {"nan": self.nans, "inf": self.infinities}
        yield from ((name, str(count)) for name, count in counts.items() if count)
        if not (self.count or any(counts.values())) and self.whole_sum is None and self.booleans is None:
            yield "elements", "0"


def _number(value: float) -> str:
    text = f"{value:.6g}"
    return "0" if text == "-0" else text


def difference_of(
    expected: Statistics, found: Statistics, dtypes: Iterable[str], tolerance: Tolerance
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
        distance = abs(float(now) - float(before))
        room = tolerance.allowed(max(scale, abs(float(before))), *kinds)
        if not distance <= room:
            text = f"{name} {now} instead of {before}, tolerance {room:.2g}"
            apart.append((distance / room if room else inf, name, text))
    if not apart:
        return None
    apart.sort(key=lambda entry: -entry[0])  # which leaves those alike in their order
    (_, _, text), *others = apart
    return text + (f"; {', '.join(name for _, name, _ in others)} too" if others else "")
