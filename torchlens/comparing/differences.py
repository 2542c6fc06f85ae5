"""How far two values are apart, in float64 or complex128, a piece at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import torch
from torch import Tensor

from torchlens.report.amounts import shape_text
from torchlens.report.sizes import shape_of

_PIECE: Final = 1 << 15
"""Elements that are compared at a time, so that they stay in the processor's cache."""

_MOST_DENSE: Final = 1 << 26
"""Elements of a sparse value that is made dense, half a gigabyte in float64."""


class IncomparableError(Exception):
    """Two values have no elements to compare one by one; the text says why."""


@dataclass(frozen=True, slots=True)
class Difference:
    """How far two values of one shape are apart."""

    equal: bool
    """Of one dtype and equal bit for bit, any two NaNs being equal; 0.0 and -0.0 are not."""
    unequal: int
    """How many elements differ."""
    max_abs: float
    mean_abs: float
    max_rel: float
    mean_rel: float
    cosine: float | None
    """1 for equal values; None where it is not defined: one is all zero, or not all is finite."""


class Piece(NamedTuple):
    """Some elements of two values, in float64 or complex128, and how far they are apart."""

    start: int
    """The flat index of the first."""
    a: Tensor
    b: Tensor
    apart: Tensor
    """|a - b|: 0 for two NaNs and for two infinities of one sign, inf where one side alone is either."""
    size: Tensor
    """max(|a|, |b|); inf where one is NaN."""
    unequal: Tensor


def measure(a: Tensor, b: Tensor) -> Difference:
    """How far two values are apart; raises `IncomparableError` where they have no elements in common.

    An absolute difference is |a - b|, a relative one |a - b| / max(|a|, |b|), and 0 where both are 0. Two
    NaNs differ by 0, as do two infinities of one sign; a NaN or an infinity beside anything else by inf, both
    ways. All is computed in float64, complex values in complex128, booleans as 0 and 1; of integers beyond
    2**53 `unequal` and `equal` are exact and the amounts are not. The cosine is that of the flattened values,
    of complex ones its real part.
    """
    left, right = comparable(a, b)
    if is_same(left, right) and a.dtype == b.dtype:
        return _SAME
    unequal, sum_abs, sum_rel, max_abs, max_rel = 0, 0.0, 0.0, 0.0, 0.0
    cosine = _Cosine()
    for piece in pieces(left, right):
        relative = _relative(piece)
        unequal += int(piece.unequal.sum())
        sum_abs, sum_rel = sum_abs + float(piece.apart.sum()), sum_rel + float(relative.sum())
        max_abs, max_rel = max(max_abs, float(piece.apart.max())), max(max_rel, float(relative.max()))
        cosine.add(piece)
    count = max(left.numel(), 1)
    if a.dtype == b.dtype and not unequal:
        return _SAME
    return Difference(False, unequal, max_abs, sum_abs / count, max_rel, sum_rel / count, cosine.value())


def comparable(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The two values as plain tensors of one shape on one device."""
    if shape_of(a) != shape_of(b):
        raise IncomparableError(f"shapes differ: {shape_text(shape_of(a))} and {shape_text(shape_of(b))}")
    left, right = _plain(a), _plain(b)
    if left.device != right.device or left.device.type == "mps":  # which has no float64
        left, right = left.cpu(), right.cpu()
    return left, right


def pieces(a: Tensor, b: Tensor) -> Iterator[Piece]:
    """The elements of two plain tensors of one shape, piece by piece; nothing for tensors without any."""
    wide = torch.complex128 if a.is_complex() or b.is_complex() else torch.float64
    flat_a, flat_b = a.reshape(-1), b.reshape(-1)
    for start in range(0, flat_a.numel(), _PIECE):
        ours, theirs = flat_a[start : start + _PIECE], flat_b[start : start + _PIECE]
        x, y = _widened(ours, wide), _widened(theirs, wide)
        unequal = _unequal(ours, theirs, x, y)
        apart, size = (x - y).abs(), torch.maximum(x.abs(), y.abs())
        if not math.isfinite(apart.sum()):
            both_nan = x.isnan() & y.isnan()
            apart = apart.masked_fill((x == y) | both_nan, 0.0)
            apart = apart.masked_fill(apart.isnan(), math.inf)
            size = size.masked_fill(size.isnan(), math.inf)
            unequal &= ~both_nan
        yield Piece(start, x, y, apart, size, unequal)


def is_same(a: Tensor, b: Tensor) -> bool:
    """Whether two plain tensors of one shape have one dtype and the same bits."""
    if a is b:
        return True
    return a.dtype == b.dtype and not _unequal_bits(a.reshape(-1), b.reshape(-1)).any()


def _plain(value: Tensor) -> Tensor:
    """The value as a strided tensor with elements."""
    if value.is_meta:
        raise IncomparableError("a value on meta has no elements")
    if value.is_nested:
        raise IncomparableError("a nested tensor has no one shape")
    value = value.detach()
    if value.is_quantized:
        return value.dequantize()
    if value.layout is not torch.strided:
        if value.numel() > _MOST_DENSE:
            raise IncomparableError(
                f"a sparse value is compared as a dense one, and {value.numel():,} elements are too many"
            )
        return value.to_dense()
    return value.resolve_conj().resolve_neg()


def _widened(values: Tensor, wide: torch.dtype) -> Tensor:
    try:
        return values.to(wide)
    except RuntimeError as error:
        raise IncomparableError(f"torch does not compute with {values.dtype}") from error


_BITS: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _unequal(a: Tensor, b: Tensor, wide_a: Tensor, wide_b: Tensor) -> Tensor:
    """Which elements differ: in any bit where the dtype is one, otherwise in the number they stand for."""
    if a.dtype == b.dtype:
        return _unequal_bits(a, b)
    if any(
        value.is_floating_point() or value.is_complex() or value.dtype is torch.uint64 for value in (a, b)
    ):
        return wide_a != wide_b
    return a.to(torch.int64) != b.to(torch.int64)  # which float64 would not tell apart


def _unequal_bits(a: Tensor, b: Tensor) -> Tensor:
    """Which elements of two flat tensors of one dtype differ in any bit."""
    if a.is_complex():
        left, right = (
            torch.view_as_real(value.contiguous()).view(_BITS[value.itemsize // 2]) for value in (a, b)
        )
        return (left != right).any(-1)
    return a.contiguous().view(_BITS[a.itemsize]) != b.contiguous().view(_BITS[b.itemsize])


def _relative(piece: Piece) -> Tensor:
    """The relative differences; inf beside infinities."""
    relative = piece.apart / piece.size.masked_fill(piece.size == 0, 1.0)
    return relative.masked_fill(piece.apart.isinf(), math.inf)


class _Cosine:
    """Gathers the cosine of two values piece by piece, each relative to the largest magnitude so far.

    Squares of what is very large or small would not fit into float64.
    """

    def __init__(self) -> None:
        self._largest = [0.0, 0.0]
        self._both, self._a, self._b = 0.0, 0.0, 0.0

    def add(self, piece: Piece) -> None:
        """Take in some elements."""
        old, new = self._largest, [0.0, 0.0]
        for side, values in enumerate((piece.a, piece.b)):
            new[side] = max(old[side], float(values.abs().max()))
        shrunk = [before / after if after else 0.0 for before, after in zip(old, new)]
        a, b = (values / (largest or 1.0) for values, largest in zip((piece.a, piece.b), new))
        self._both = self._both * shrunk[0] * shrunk[1] + float(torch.vdot(a, b).real)
        self._a = self._a * shrunk[0] ** 2 + float(torch.vdot(a, a).real)
        self._b = self._b * shrunk[1] ** 2 + float(torch.vdot(b, b).real)
        self._largest = new

    def value(self) -> float | None:
        """The cosine of all; None where it is not defined."""
        if self._a == self._b == 0:
            return 1.0
        if self._a == 0 or self._b == 0 or not all(map(math.isfinite, (self._both, self._a, self._b))):
            return None
        return max(-1.0, min(1.0, self._both / math.sqrt(self._a) / math.sqrt(self._b)))


_SAME: Final = Difference(True, 0, 0.0, 0.0, 0.0, 0.0, 1.0)
