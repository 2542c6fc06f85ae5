"""Where two values are further apart than a tolerance allows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torchlens.comparing.differences import comparable, is_same, pieces
from torchlens.comparing.tolerances import Tolerance


@dataclass(frozen=True, slots=True)
class Excess:
    """The elements of two values that differ by more than the tolerance."""

    count: int
    of: int
    """How many elements there are."""
    index: tuple[int, ...]
    """Of the one that differs most."""
    a: complex | float
    b: complex | float


def find_excess(a: Tensor, b: Tensor, tolerance: Tolerance) -> Excess | None:
    """The elements of two values that are too far apart; None if none is."""
    left, right = comparable(a, b)
    if is_same(left, right):
        return None
    # float64 does not tell all integers beyond 2**53 apart
    by_bits = tolerance == (0, 0) and left.dtype == right.dtype and not _is_inexact(left)
    count, most, worst = 0, -1.0, (0, 0.0, 0.0)
    for piece in pieces(left, right):
        over = (piece.apart > tolerance.absolute + tolerance.relative * piece.size) | piece.apart.isinf()
        if by_bits:
            over = piece.unequal
        found = int(over.sum())
        if not found:
            continue
        count += found
        apart = torch.where(over, piece.apart, -1.0)
        at = int(apart.argmax())
        if float(apart[at]) > most:
            most = float(apart[at])
            worst = piece.start + at, piece.a[at].item(), piece.b[at].item()
    if not count:
        return None
    at, one, other = worst
    index = tuple(int(place) for place in torch.unravel_index(torch.tensor(at), left.shape))
    return Excess(count, left.numel(), index, one, other)


def _is_inexact(value: Tensor) -> bool:
    return value.is_floating_point() or value.is_complex()
