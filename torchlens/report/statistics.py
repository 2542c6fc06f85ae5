"""The elements of one value in numbers: range, moments, quantiles, what is not finite, a histogram."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

PROBABILITIES: Final = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
_PIECE: Final = 1 << 20
"""Elements that are looked at in one go: 8 MB in float64, whatever the size of the value."""
_MOST_SORTED: Final = 1 << 22
"""Of values with more elements than this, quantiles are those of evenly spaced ones."""
_BINS: Final = 10
_SPARSE: Final = frozenset(
    (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
)


@dataclass(frozen=True, slots=True)
class Bin:
    """A part of the range and how many finite elements lie in it: `low` is in it, `high` only in the last."""

    low: float
    high: float
    count: int


@dataclass(frozen=True, slots=True)
class Statistics:
    """The elements of a value in numbers. Those of a complex value are of its magnitudes.

    `minimum` to `histogram` are of the finite elements, None or empty where there are none. All is computed
    in float64, so that integers beyond 2**53 are rounded.
    """

    of: str
    """`elements`, `magnitudes` of a complex value, `stored elements` of a sparse one."""
    count: int
    nan: int
    """How many are NaN."""
    positive_infinity: int
    negative_infinity: int
    zeros: int
    minimum: float | None
    maximum: float | None
    mean: float | None
    std: float | None
    """With n - 1 as divisor, as `torch.std` has it; None below two elements."""
    quantiles: dict[str, float]
    """By probability, `"0.5"`: of every n-th element where there are more than four million."""
    histogram: tuple[Bin, ...]
    """Ten equal parts of the range; one for each number where these are few integers."""

    @property
    def finite(self) -> int:
        """How many are neither infinite nor NaN."""
        return self.count - self.nan - self.positive_infinity - self.negative_infinity


class NoElementsError(Exception):
    """A tensor has no elements to count; the text says why."""


@dataclass(slots=True)
class _Counts:
    count: int = 0
    nan: int = 0
    above: int = 0
    below: int = 0
    zeros: int = 0
    low: float = math.inf
    high: float = -math.inf


def statistics_of(value: Tensor) -> Statistics:
    """Read all elements of a value; raises `NoElementsError` for one that has none to read."""
    try:
        with torch.no_grad(), torch._C.DisableTorchFunction():
            return _statistics(*_flat(value))
    except (RuntimeError, TypeError) as error:
        first = str(error).strip().partition("\n")[0]
        raise NoElementsError(f"its elements cannot be read as numbers: {first}") from error


def _statistics(flat: Tensor, of: str) -> Statistics:
    found = _counts(flat)
    finite = found.count - found.nan - found.above - found.below
    mean, std = _moments(flat, found, finite) if finite else (None, None)
    return Statistics(
        of=of,
        count=found.count,
        nan=found.nan,
        positive_infinity=found.above,
        negative_infinity=found.below,
        zeros=found.zeros,
        minimum=found.low if finite else None,
        maximum=found.high if finite else None,
        mean=mean,
        std=std,
        quantiles=_quantiles(flat) if finite else {},
        histogram=_histogram(flat, found) if finite else (),
    )


def _flat(value: Tensor) -> tuple[Tensor, str]:
    """The elements in a row, and what they are."""
    if value.is_nested:
        raise NoElementsError("a nested tensor is not looked into")
    if value.device.type == "meta":
        raise NoElementsError("a tensor on the meta device has no elements")
    if value.is_quantized:
        value = value.dequantize()
    of = "elements"
    if value.layout in _SPARSE:
        value, of = _stored(value), "stored elements"
    elif value.layout != torch.strided:
        value = value.to_dense()
    if value.is_complex():
        value, of = value.abs(), "magnitudes"
    return value.detach().reshape(-1), of


def _stored(value: Tensor) -> Tensor:
    return value.coalesce().values() if value.layout == torch.sparse_coo else value.values()


def _pieces(flat: Tensor) -> Iterator[Tensor]:
    for start in range(0, flat.numel(), _PIECE):
        yield flat[start : start + _PIECE].cpu().to(torch.float64)


def _finite(flat: Tensor) -> Iterator[Tensor]:
    for piece in _pieces(flat):
        yield piece[piece.isfinite()]


def _counts(flat: Tensor) -> _Counts:
    found = _Counts()
    for piece in _pieces(flat):
        found.count += piece.numel()
        found.nan += int(piece.isnan().sum())
        found.above += int((piece == math.inf).sum())
        found.below += int((piece == -math.inf).sum())
        found.zeros += int((piece == 0).sum())
        finite = piece[piece.isfinite()]
        if finite.numel():
            found.low = min(found.low, float(finite.min()))
            found.high = max(found.high, float(finite.max()))
    return found


def _moments(flat: Tensor, found: _Counts, finite: int) -> tuple[float, float | None]:
    """Mean and standard deviation, scaled so that no square or sum leaves the range of float64."""
    scale = max(abs(found.low), abs(found.high)) or 1.0
    mean = sum(float((piece / scale).sum()) for piece in _finite(flat)) / finite
    if finite < 2:
        return mean * scale, None
    squares = sum(float((piece / scale - mean).square().sum()) for piece in _finite(flat))
    return mean * scale, math.sqrt(squares / (finite - 1)) * scale


def _quantiles(flat: Tensor) -> dict[str, float]:
    step = -(-flat.numel() // _MOST_SORTED)
    taken = torch.cat(list(_finite(flat[::step])))
    if not taken.numel():  # none of the finite ones is among those taken
        return {}
    ordered = taken.sort().values
    places = [probability * (ordered.numel() - 1) for probability in PROBABILITIES]
    return {str(p): _between(ordered, place) for p, place in zip(PROBABILITIES, places)}


def _between(ordered: Tensor, place: float) -> float:
    lower = math.floor(place)
    low, high = float(ordered[lower]), float(ordered[min(lower + 1, ordered.numel() - 1)])
    part = place - lower
    return low * (1 - part) + high * part


def _histogram(flat: Tensor, found: _Counts) -> tuple[Bin, ...]:
    low, high = found.low, found.high
    if low == high:
        return (Bin(low, high, sum(piece.numel() for piece in _finite(flat))),)
    whole = not flat.is_floating_point() and high - low < 2 * _BINS
    num_bins = int(high - low) + 1 if whole else _BINS
    total = torch.zeros(num_bins, dtype=torch.int64)
    scale = max(abs(low), abs(high))
    span = high / scale - low / scale
    for piece in _finite(flat):
        places = piece - low if whole else (piece / scale - low / scale) / span * num_bins
        total += torch.bincount(places.long().clamp(0, num_bins - 1), minlength=num_bins)
    counts = [int(count) for count in total]
    if whole:
        return tuple(Bin(low + at, low + at, count) for at, count in enumerate(counts))
    edges = [low * (1 - at / num_bins) + high * (at / num_bins) for at in range(num_bins + 1)]
    return tuple(Bin(*part) for part in zip(edges, edges[1:], counts))
