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

from torchlens._values.geometry import StorageKey, region_of, storage_key

_Span: TypeAlias = tuple[int, int, int]
"""First byte, one past the last, and the storage."""


class SharedMemory:
    """Knows which of the recorded storages overlap in memory. Asked only of tensors that may share it."""

    def __init__(self) -> None:
        self._spans: list[_Span] = []
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
                    self._on[key] = tensor
                    insort(self._spans, span)

    def behind(self, tensor: Tensor) -> Tensor | None:
        """A tensor taken in earlier, on another storage over the same memory. Remembers that they share."""
        key = storage_key(tensor)
        span = _span(tensor, key) if key > 0 else None
        if span is None:
            return None
        for at in range(bisect_right(self._spans, (span[1], 0, 0)) - 1, -1, -1):
            first, past, other = self._spans[at]
            held = self._on[other]
            if past > span[0] and first < span[1] and other != key and held.device == tensor.device:
                self._sharing.setdefault(key, []).append(held)
                self._sharing.setdefault(other, []).append(tensor)
                return held
            if past <= span[0]:
                return None
        return None

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
