"""Which bytes of a storage are meant, and which of several writers last wrote them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import as_strided


@dataclass(slots=True)
class Region:
    """The elements of a storage that a tensor covers, in units of its element size.

    A tensor without a storage of its own (sparse, wrapper) is one indivisible element; a nested one covers
    its whole storage.
    """

    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    itemsize: int

    @property
    def span(self) -> tuple[int, int]:
        """First byte and one past the last; both equal when there is no element."""
        if 0 in self.size:
            return self.offset * self.itemsize, self.offset * self.itemsize
        last = self.offset + sum((n - 1) * s for n, s in zip(self.size, self.stride))
        return self.offset * self.itemsize, (last + 1) * self.itemsize

    @property
    def is_dense(self) -> bool:
        """Whether every byte of the span belongs to the region."""
        expected = 1
        for stride, size in sorted(zip(self.stride, self.size)):
            if size != 1:
                if stride != expected:
                    return False
                expected *= size
        return True

    @property
    def may_overlap_itself(self) -> bool:
        """Whether one element of the storage may stand at several places, as in an expanded tensor."""
        extent = 1
        for stride, size in sorted(zip(self.stride, self.size)):
            if size > 1:
                if stride < extent:
                    return True
                extent += stride * (size - 1)
        return False

    def mask(self, flat: np.ndarray, unit: int) -> np.ndarray:
        """A view of `flat`, which has one item for each `unit` bytes of the storage, on this region."""
        ratio = self.itemsize // unit
        sizes = (n if s else min(n, 1) for n, s in zip(self.size, self.stride))  # expanded: one element
        size, stride = (*sizes, ratio), (*(s * ratio for s in self.stride), 1)
        return as_strided(flat[self.offset * ratio :], size, stride)


def share_elements(one: Region, other: Region) -> bool:
    """Whether two regions of one storage have an element in common."""
    (low, high), (first, past) = one.span, other.span
    if low == high or first == past or past <= low or high <= first:
        return False
    return (one.is_dense and other.is_dense) or bool(last_writers(one, [other])[0])


def surely_covers(region: Region, other: Region) -> bool:
    """Whether a region has every element of another, as far as can be told at a glance."""
    (low, high), (first, past) = other.span, region.span
    return region == other or (first <= low and high <= past and region.is_dense)


def last_writers(reader: Region, writers: Iterable[Region]) -> tuple[list[int], bool]:
    """Positions of the writers, given newest first, that last wrote some element of the reader.

    The second result says whether they cover the reader; if not, some elements are older than all of them.
    """
    low, high = reader.span
    found: list[int] = []
    remaining: np.ndarray | None = None
    unit = reader.itemsize
    if low == high:
        return found, False
    for position, writer in enumerate(writers):
        first, past = writer.span
        if past <= low or high <= first:
            continue
        if surely_covers(writer, reader):
            found.append(position)
            return found, True
        if remaining is None or unit > writer.itemsize:
            unit, remaining = _refine(reader, remaining, unit, writer)
        remaining = _extend(remaining, -(-past // unit))
        covered = writer.mask(remaining, unit)
        if covered.any():
            found.append(position)
            covered[...] = False
            if not remaining.any():
                return found, True
    return found, False


def _refine(reader: Region, old: np.ndarray | None, unit: int, writer: Region) -> tuple[int, np.ndarray]:
    """What remains of the reader, with one item for each element of the smaller of the two element sizes."""
    finer = min(unit, writer.itemsize)
    if old is not None:
        return finer, np.repeat(old, unit // finer)
    flat = np.zeros(-(-reader.span[1] // finer), dtype=bool)
    reader.mask(flat, finer)[...] = True
    return finer, flat


def _extend(flat: np.ndarray, length: int) -> np.ndarray:
    return flat if len(flat) >= length else np.concatenate([flat, np.zeros(length - len(flat), dtype=bool)])
