"""The longest sequence that two sequences have in common, found early in both, and what lies between."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import pairwise
from math import isqrt
from typing import Final, TypeAlias, TypeVar

T = TypeVar("T")
Pairs: TypeAlias = list[tuple[int, int]]
"""Positions in two sequences, rising in both."""

_FREQUENT: Final = 64
"""Keys that occur so often keep their number: for all keys that would be a square of bits."""


def common_subsequence(left: Sequence[Hashable | None], right: Sequence[Hashable | None]) -> Pairs:
    """The positions (in `left`, in `right`) of a longest common subsequence; None is equal to nothing.

    Of several longest ones it takes an item as soon as it can: where a loop ran five times on the left and
    seven times on the right, the first five rounds are common. Time is len(left) * len(right) / 64 word
    operations, and linear where one is the other with items of its own put in.
    """
    rights = set(right)
    ours = [at for at, key in enumerate(left) if key is not None and key in rights]
    lefts = {left[at] for at in ours}
    theirs = [at for at, key in enumerate(right) if key in lefts]
    a, b = [left[at] for at in ours], [right[at] for at in theirs]
    same = 0
    while same < len(a) and same < len(b) and a[same] == b[same]:
        same += 1
    found = [(at, at) for at in range(same)]
    if same < len(a) and same < len(b):
        found += [(same + i, same + j) for i, j in _walk(a[same:], b[same:])]
    return [(ours[i], theirs[j]) for i, j in found]


def gaps(anchors: Pairs, left: Sequence[T], right: Sequence[T]) -> Iterator[tuple[Sequence[T], Sequence[T]]]:
    """What lies between two anchors, before the first and after the last, on both sides."""
    for (one, other), (end, its_end) in pairwise([(-1, -1), *anchors, (len(left), len(right))]):
        yield left[one + 1 : end], right[other + 1 : its_end]


def refined(found: Pairs, left: Sequence[Hashable | None], right: Sequence[Hashable | None]) -> Pairs:
    """The pairs with those that other keys find between them."""
    inner: Pairs = []
    for ours, theirs in gaps(found, range(len(left)), range(len(right))):
        if not (ours and theirs):
            continue
        keys, others = [left[at] for at in ours], [right[at] for at in theirs]
        inner += [(ours[at], theirs[there]) for at, there in common_subsequence(keys, others)]
    return sorted([*found, *inner])


def _walk(a: Sequence[Hashable], b: Sequence[Hashable]) -> Iterator[tuple[int, int]]:
    """From the start: take two equal heads, otherwise drop the one that costs nothing, `a`'s if both do."""
    table = _Table(a, b)
    i = j = 0
    while i < len(a) and j < len(b):
        if a[i] == b[j]:
            yield i, j
            i, j = i + 1, j + 1
        elif table.can_drop(i, j):
            i += 1
        else:
            j += 1


class _Table:
    """For each suffix of `b`, at which items of `a` the common length grows, as the zero bits of one number.

    This is the table of the textbook's dynamic programme with a row in one integer, so that a row is a few
    additions of long integers (Crochemore, Iliopoulos, Pinzon, Reid: a fast and practical bit-vector
    algorithm for the longest common subsequence problem, 2001). Of n rows the square root of n are kept;
    those between two kept ones are made again when the walk comes to them.
    """

    def __init__(self, a: Sequence[Hashable], b: Sequence[Hashable]) -> None:
        self._last, self._b = len(a) - 1, b
        self._all = (1 << len(a)) - 1
        self._where = _Positions(a)
        self._stride = isqrt(len(b)) + 1
        self._kept: dict[int, int] = {}
        row = self._all
        for j in range(len(b), -1, -1):
            row = row if j == len(b) else self._above(row, j)
            if j % self._stride == 0 or j == len(b):
                self._kept[j] = row
        self._rows: dict[int, int] = {}

    def can_drop(self, i: int, j: int) -> bool:
        """Whether `a[i + 1:]` has as much in common with `b[j:]` as `a[i:]` has. `j` must not fall."""
        if j not in self._rows:
            self._make_rows(j)
        return bool(self._rows[j] >> (self._last - i) & 1)

    def _above(self, row: int, j: int) -> int:
        """The row of `b[j:]` from that of `b[j + 1:]`."""
        hits = row & self._where.of(self._b[j])
        return ((row + hits) | (row - hits)) & self._all

    def _make_rows(self, j: int) -> None:
        end = min(j - j % self._stride + self._stride, len(self._b))
        row = self._kept[end]
        self._rows = {end: row}
        for at in range(end - 1, j - 1, -1):
            row = self._rows[at] = self._above(row, at)


class _Positions:
    """Where each key stands in a sequence, as the one bits of a number, the last item at bit 0."""

    def __init__(self, sequence: Sequence[Hashable]) -> None:
        self._size = len(sequence) // 8 + 1
        self._bits: dict[Hashable, list[int]] = {}
        for bit, key in enumerate(reversed(sequence)):
            self._bits.setdefault(key, []).append(bit)
        self._frequent = {
            key: self._number(bits) for key, bits in self._bits.items() if len(bits) >= _FREQUENT
        }

    def of(self, key: Hashable) -> int:
        """0 for a key that does not occur."""
        number = self._frequent.get(key)
        return self._number(self._bits.get(key, ())) if number is None else number

    def _number(self, bits: Sequence[int]) -> int:
        if not bits:
            return 0
        mask = bytearray(self._size)
        for bit in bits:
            mask[bit >> 3] |= 1 << (bit & 7)
        return int.from_bytes(mask, "little")
