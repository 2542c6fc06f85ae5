"""Counts and moments of the elements of tensors, read a piece at a time in float64 or complex128."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import torch
from torch import Tensor

Of: TypeAlias = Literal["elements", "magnitudes", "stored elements", "stored magnitudes"]
"""What is counted: of complex values the magnitudes, of sparse ones what they store."""
_PIECE: Final = 1 << 20
"""Elements that are looked at in one go: 8 MB in float64, whatever the size of the value."""
_SPARSE: Final = frozenset(
    (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
)


class NoElementsError(Exception):
    """A tensor has no elements to count; the text says why."""


@dataclass(slots=True)
class Tally:
    """What was seen of elements, gathered tensor by tensor."""

    count: int = 0
    nan: int = 0
    """How many are NaN, in either part if they are complex."""
    positive_infinity: int = 0
    """Of complex ones all that are infinite."""
    negative_infinity: int = 0
    zeros: int = 0
    finite: int = 0
    """How many are neither infinite nor NaN."""
    low: float = math.inf
    """Of the finite elements, as all that follows."""
    high: float = -math.inf
    mean: float = 0.0
    spread: float = 0.0
    """The root of the mean squared distance from the mean: with n as divisor."""

    def add(self, flat: Tensor) -> None:
        """Take the elements of a strided tensor with one dimension in, complex ones by their magnitudes."""
        for piece in _wide_pieces(flat):
            self.count += piece.numel()
            self.zeros += int((piece == 0).sum())
            numbers = piece if piece.is_floating_point() and _is_finite(piece) else self._finite(piece)
            if numbers.numel():
                self._pool(numbers)

    def _finite(self, piece: Tensor) -> Tensor:
        self.nan += int(piece.isnan().sum())
        if piece.is_complex():
            self.positive_infinity += int((piece.isinf() & ~piece.isnan()).sum())
        else:
            self.positive_infinity += int((piece == math.inf).sum())
            self.negative_infinity += int((piece == -math.inf).sum())
        return _finite_of(piece)

    def _pool(self, numbers: Tensor) -> None:
        """Take finite numbers in, by what is known of them; no square or sum leaves the range of float64."""
        low, high = map(float, numbers.aminmax())
        self.low, self.high = min(self.low, low), max(self.high, high)
        # a power of two, by which dividing is exact
        scale = math.ldexp(1.0, math.frexp(max(abs(low), abs(high)))[1] - 1)
        variance, mean = map(float, torch.var_mean(numbers / scale, correction=0))
        self._merge(numbers.numel(), mean * scale, math.sqrt(variance) * scale)

    def _merge(self, finite: int, mean: float, spread: float) -> None:
        self.finite, before = self.finite + finite, self.finite
        if not before:
            self.mean, self.spread = mean, spread
            return
        theirs = finite / self.finite
        ours = 1 - theirs
        half = mean / 2 - self.mean / 2
        self.mean += half * theirs * 2
        between = 2 * math.sqrt(ours * theirs) * half
        self.spread = math.hypot(math.sqrt(ours) * self.spread, math.sqrt(theirs) * spread, between)

    @property
    def std(self) -> float | None:
        """The standard deviation with n - 1 as divisor; None below two elements."""
        return None if self.finite < 2 else self.spread * math.sqrt(self.finite / (self.finite - 1))


def elements_of(value: Tensor) -> tuple[Tensor, Of]:
    """The elements of a value in a row, and what they are; raises `NoElementsError` where it has none."""
    if value.is_nested:
        raise NoElementsError("a nested tensor is not looked into")
    if value.device.type == "meta":
        raise NoElementsError("a tensor on the meta device has no elements")
    value = value.detach()
    if value.is_quantized:
        value = value.dequantize()
    sparse = value.layout in _SPARSE
    if sparse:
        value = value.coalesce().values() if value.layout == torch.sparse_coo else value.values()
    elif value.layout != torch.strided:
        value = value.to_dense()
    if value.is_complex():
        return value.reshape(-1), "stored magnitudes" if sparse else "magnitudes"
    return value.reshape(-1), "stored elements" if sparse else "elements"


def pieces_of(flat: Tensor) -> Iterator[Tensor]:
    """The elements on the host, a piece at a time."""
    for start in range(0, flat.numel(), _PIECE):
        yield flat[start : start + _PIECE].cpu()


def _wide_pieces(flat: Tensor) -> Iterator[Tensor]:
    wide = torch.complex128 if flat.is_complex() else torch.float64
    return (piece.to(wide) for piece in pieces_of(flat))


def finite_pieces(flat: Tensor) -> Iterator[Tensor]:
    """The finite elements in float64, a piece at a time; the magnitudes of complex ones."""
    return map(_finite_of, _wide_pieces(flat))


def _finite_of(piece: Tensor) -> Tensor:
    finite = piece[piece.isfinite()]
    # of finite parts near the end of float64 the magnitude is beyond it
    return finite.abs().clamp(max=torch.finfo(torch.float64).max) if finite.is_complex() else finite


def _is_finite(piece: Tensor) -> bool:
    low, high = piece.aminmax()
    return math.isfinite(low) and math.isfinite(high)
