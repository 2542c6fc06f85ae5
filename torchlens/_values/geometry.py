"""Which bytes of which storage a tensor covers, and which of several writers they were last written by."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from numpy.lib.stride_tricks import as_strided
from torch import Tensor

StorageKey: TypeAlias = int
"""Address of a storage object; of the tensor itself (negated) where a tensor has no storage."""


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
        size, stride = (*self.size, ratio), (*(s * ratio for s in self.stride), 1)
        return as_strided(flat[self.offset * ratio :], size, stride)


def storage_key(tensor: Tensor) -> StorageKey:
    """What names the storage of a tensor while both are alive."""
    try:
        return tensor.untyped_storage()._cdata
    except (RuntimeError, NotImplementedError, ValueError):
        # sparse and nested tensors have none, nor have parameters that a lazy module will fill
        return -id(tensor)


def region_of(tensor: Tensor) -> Region:
    """The elements of its storage that the tensor covers now."""
    if tensor.layout is not torch.strided or (type(tensor) is not Tensor and is_wrapper(tensor)):
        return Region(0, (1,), (1,), 1)
    if tensor.is_nested:
        return Region(0, (tensor.untyped_storage().nbytes(),), (1,), 1)
    try:
        offset = cast("int", tensor.storage_offset())
        return Region(offset, tuple(tensor.shape), tensor.stride(), tensor.element_size())
    except (RuntimeError, NotImplementedError, ValueError):
        return Region(0, (1,), (1,), 1)


def is_wrapper(tensor: Tensor) -> bool:
    """Whether a class with a `__torch_dispatch__` of its own stands between the tensor and its elements."""
    kind: Any = type(tensor)
    return kind.__torch_dispatch__ is not _PLAIN_DISPATCH


_PLAIN_DISPATCH = cast("Any", Tensor).__torch_dispatch__


def flat_span(tensor: Tensor) -> Tensor:
    """A flat view of the storage from the first to the last element of the tensor."""
    if tensor.is_nested:
        return octets_of(tensor)
    region = region_of(tensor)
    first, past = (byte // region.itemsize for byte in region.span)
    view = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return view.set_(tensor.untyped_storage(), first, (past - first,), (1,))


def octets_of(tensor: Tensor) -> Tensor:
    """The bytes from the first to the last element of the tensor; of a nested one, of its whole storage."""
    first, past = region_of(tensor).span
    view = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return view.set_(tensor.untyped_storage(), first, (past - first,), (1,))


def flat_storage(tensor: Tensor) -> Tensor:
    """The bytes of the tensor's whole storage."""
    storage = tensor.untyped_storage()
    view = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return view.set_(storage, 0, (storage.nbytes(),), (1,))


def same_geometry(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors cover the same elements of a storage in the same order."""
    return storage_key(one) == storage_key(other) and region_of(one) == region_of(other)


def bytes_of(tensor: Tensor) -> int:
    """Bytes of the tensor's elements; of a sparse tensor, of the values and indices it holds."""
    if tensor.layout not in _SPARSE or tensor.is_nested:
        return tensor.numel() * tensor.element_size()
    return sum(getattr(tensor, name)().nbytes for name in _SPARSE[tensor.layout])


_SPARSE = {
    torch.sparse_coo: ("_values", "_indices"),
    torch.sparse_csr: ("values", "crow_indices", "col_indices"),
    torch.sparse_bsr: ("values", "crow_indices", "col_indices"),
    torch.sparse_csc: ("values", "ccol_indices", "row_indices"),
    torch.sparse_bsc: ("values", "ccol_indices", "row_indices"),
}


def shape_of(tensor: Tensor) -> tuple[int, ...]:
    """The size of each dimension; -1 where the parts of a nested tensor differ."""
    if not tensor.is_nested:
        return tuple(tensor.shape)
    return tuple(_size_of(tensor, dim) for dim in range(tensor.dim()))


def _size_of(nested: Tensor, dim: int) -> int:
    try:
        size: object = nested.size(dim)
    except RuntimeError:
        return -1
    return size if type(size) is int else -1  # a jagged one has a symbol there


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
