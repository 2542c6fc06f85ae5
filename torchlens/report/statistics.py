"""The elements of one value in numbers: range, moments, quantiles, what is not finite, a histogram."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from torchlens._values.tally import NoElementsError, Of, Tally, elements_of, finite_pieces

PROBABILITIES: Final = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
_MOST_SORTED: Final = 1 << 22
"""Of values with more elements than this, quantiles are those of evenly spaced ones."""
_BINS: Final = 10


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

    of: Of
    """What was counted."""
    count: int
    nan: int
    """How many are NaN, in either part if they are complex."""
    positive_infinity: int
    """Of complex ones all that are infinite."""
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
        return self.count - self.nan - self.infinite

    @property
    def infinite(self) -> int:
        """How many are infinite, of either sign."""
        return self.positive_infinity + self.negative_infinity


def statistics_of(value: Tensor) -> Statistics:
    """Read all elements of a value; raises `NoElementsError` for one that has none to read."""
    try:
        with torch.no_grad(), torch._C.DisableTorchFunction():
            return _statistics(*elements_of(value))
    except (RuntimeError, TypeError) as error:
        first = str(error).strip().partition("\n")[0]
        raise NoElementsError(f"its elements cannot be read as numbers: {first}") from error


def _statistics(flat: Tensor, of: Of) -> Statistics:
    found = Tally()
    found.add(flat)
    return Statistics(
        of=of,
        count=found.count,
        nan=found.nan,
        positive_infinity=found.positive_infinity,
        negative_infinity=found.negative_infinity,
        zeros=found.zeros,
        minimum=found.low if found.finite else None,
        maximum=found.high if found.finite else None,
        mean=found.mean if found.finite else None,
        std=found.std,
        quantiles=_quantiles(flat) if found.finite else {},
        histogram=_histogram(flat, found.low, found.high) if found.finite else (),
    )


def _quantiles(flat: Tensor) -> dict[str, float]:
    step = -(-flat.numel() // _MOST_SORTED)
    taken = torch.cat(list(finite_pieces(flat[::step])))
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


def _histogram(flat: Tensor, low: float, high: float) -> tuple[Bin, ...]:
    if low == high:
        return (Bin(low, high, sum(piece.numel() for piece in finite_pieces(flat))),)
    whole = not (flat.is_floating_point() or flat.is_complex()) and high - low < 2 * _BINS
    num_bins = int(high - low) + 1 if whole else _BINS
    total = torch.zeros(num_bins, dtype=torch.int64)
    scale = max(abs(low), abs(high))
    span = high / scale - low / scale
    for piece in finite_pieces(flat):
        places = piece - low if whole else (piece / scale - low / scale) / span * num_bins
        total += torch.bincount(places.long().clamp(0, num_bins - 1), minlength=num_bins)
    counts = [int(count) for count in total]
    if whole:
        return tuple(Bin(low + at, low + at, count) for at, count in enumerate(counts))
    edges = [low * (1 - at / num_bins) + high * (at / num_bins) for at in range(num_bins + 1)]
    return tuple(Bin(*part) for part in zip(edges, edges[1:], counts))
