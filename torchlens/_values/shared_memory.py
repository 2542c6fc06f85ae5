"""Storages that lie over the same memory, as when a tensor is made of another's numpy array.

Torch knows nothing of it: each has a storage object of its own. A write into one is a write into the other,
so it is written down for both.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator
from typing import TypeAlias

import torch
from torch import Tensor

from torchlens._values.geometry import region_of, storage_key
from torchlens._values.ghost import StorageKey

_Span: TypeAlias = tuple[int, int, int]
"""First byte, one past the last, and the storage."""


class SharedMemory:
    """Knows which of the recorded storages overlap in memory. Asked only of tensors that may share it."""

    def __init__(self) -> None:
        self._spans: list[_Span] = []
        self._longest = 0
        self._on: dict[StorageKey, Tensor] = {}
        """Some tensor on each storage; it keeps the memory from being used for another one."""
        self._sharing: dict[StorageKey, list[Tensor]] = {}
        """By storage, a tensor on each other storage that overlaps it."""

    def take(self, tensors: Iterable[Tensor]) -> None:
        """Take in tensors, one for each storage; those seen before are passed over."""
        for tensor in tensors:
            key = storage_key(tensor)
            if key > 0 and key not in self._on:
                span = _span(tensor, key)
                if span is not None:
                    self._longest = max(self._longest, span[1] - span[0])
                    self._on[key] = tensor
                    insort(self._spans, span)

    def behind(self, tensor: Tensor) -> Tensor | None:
        """A tensor on another storage over the same memory, of several the one taken in first.

        That they share it is remembered for all of them.
        """
        key = storage_key(tensor)
        span = _span(tensor, key) if key > 0 else None
        found = list(self._overlapping(span, tensor.device)) if span is not None else []
        for other in found:
            self._sharing.setdefault(key, []).append(self._on[other])
            self._sharing.setdefault(other, []).append(tensor)
        return self._on[min(found, key=list(self._on).index)] if found else None

    def _overlapping(self, span: _Span, device: torch.device) -> Iterator[StorageKey]:
        first, past, key = span
        for at in range(bisect_right(self._spans, (past, 0, 0)) - 1, -1, -1):
            start, end, other = self._spans[at]
            if start + self._longest <= first:
                return
            if end > first and other != key and self._on[other].device == device:
                yield other

    def sharing(self, key: StorageKey) -> Iterator[Tensor]:
        """A tensor on each other storage over the memory of this one."""
        yield from self._sharing.get(key, ())

    def __bool__(self) -> bool:
        return bool(self._sharing)


def moved(tensor: Tensor, other: Tensor) -> Tensor | None:
    """The tensor's elements through the storage of `other`, over the same memory.

    None where they do not all lie in it, or not on a whole element.
    """
    storage = other.untyped_storage()
    itemsize = tensor.element_size()
    shift = tensor.untyped_storage().data_ptr() - storage.data_ptr()
    first, past = (byte + shift for byte in region_of(tensor).span)
    if first < 0 or past > storage.nbytes() or first % itemsize:
        return None
    view = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    offset = int(tensor.storage_offset()) + shift // itemsize
    return view.set_(storage, offset, tensor.shape, tensor.stride())


def overlaps(tensor: Tensor, other: Tensor) -> bool:
    """Whether some element of the tensor lies in the memory of the storage of `other`."""
    storage = other.untyped_storage()
    shift = tensor.untyped_storage().data_ptr() - storage.data_ptr()
    first, past = (byte + shift for byte in region_of(tensor).span)
    return first < storage.nbytes() and past > 0


def _span(tensor: Tensor, key: StorageKey) -> _Span | None:
    storage = tensor.untyped_storage()
    address, size = storage.data_ptr(), storage.nbytes()
    return (address, address + size, key) if address and size else None
