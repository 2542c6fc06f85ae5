"""Memory that was handed out, to numpy for one: was it changed there?

Torch hears nothing of a write through a numpy array. When a tensor's memory is handed out its bytes are
summed up, and again after each write that is recorded. Right before the next one, and when the capture ends,
the sum must still be the same: otherwise something else wrote.
"""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Final

from torch import Tensor

from torchlens._records import ReasonName
from torchlens._unseen import unseen
from torchlens._values.geometry import flat_span, is_wrapper, region_of, storage_key
from torchlens._values.ghost import StorageKey

_READS: Final[dict[str, ReasonName]] = {
    "numpy": "write_through_numpy",
    "__array__": "write_through_numpy",
    "__dlpack__": "write_through_numpy",
    "untyped_storage": "unexplained_write",
    "storage": "unexplained_write",
}
"""Reads that hand out memory, and what a write through it is called."""
_MOST_OF_ONE: Final = 16 << 20
"""Bytes summed up of one tensor, in 4 ms; of a larger one, blocks at even distances."""
_MOST_OF_ALL: Final = 1 << 30
"""Bytes summed up in one capture; then nothing is watched any more."""
_BLOCK: Final = 4096
_READ_ONLY: Final = 0x100  # PyBUF_READ
_octets_at = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)(
    ("PyMemoryView_FromMemory", ctypes.pythonapi)
)
"""A view of memory by address and size; an array type of `ctypes` would be garbage for the collector."""


@dataclass(slots=True)
class HandedOut:
    """A span of a storage that code beside torch can write into."""

    span: Tensor
    """From the tensor's first to its last element, flat."""
    row: int
    """How many rows there were when it was handed out."""
    reason: ReasonName
    """What a write through it is called."""
    digest: int


class HandedOutMemory:
    """The memory that one capture saw being handed out."""

    def __init__(self) -> None:
        self._on: dict[StorageKey, dict[tuple[int, int], HandedOut]] = {}
        self._summed = 0
        self.gave_up = False
        """Whether so much was summed up that nothing is watched any more."""

    def __bool__(self) -> bool:
        return bool(self._on)

    def leaves(self, name: str, tensor: Tensor, row: int) -> None:
        """A read hands out the tensor's memory, if it is one of those. What is watched already stays so."""
        if name not in _READS or is_wrapper(tensor) or tensor.device.type != "cpu" or not tensor.numel():
            return
        key, span = storage_key(tensor), region_of(tensor).span
        if key < 0 or span in self._on.get(key, ()):
            return
        with unseen():
            flat = flat_span(tensor)
            self._on.setdefault(key, {})[span] = HandedOut(flat, row, _READS[name], self._digest(flat))

    def changed(self, key: StorageKey, within: tuple[int, int] | None = None) -> Iterator[HandedOut]:
        """What was changed in a storage since the last recorded write into it; `within` these bytes."""
        for each in self._reached(key, within):
            digest = self._digest(each.span)
            if digest != each.digest:
                each.digest = digest
                yield each

    def all_changed(self) -> Iterator[HandedOut]:
        """What was changed anywhere."""
        for key in list(self._on):
            yield from self.changed(key)

    def written(self, key: StorageKey, within: tuple[int, int] | None = None) -> None:
        """A recorded write into a storage is done, `within` these bytes if that is known."""
        for each in self._reached(key, within):
            each.digest = self._digest(each.span)
        if self._summed > _MOST_OF_ALL:
            self.gave_up = True
            self._on.clear()

    def _reached(self, key: StorageKey, within: tuple[int, int] | None) -> list[HandedOut]:
        watched = self._on.get(key, {})
        if within is None:
            return list(watched.values())
        first, past = within
        return [each for (low, high), each in watched.items() if low < past and first < high]

    def _digest(self, flat: Tensor) -> int:
        """A checksum of the bytes. They are read at their address: `numpy()` would forbid resizing."""
        size = flat.numel() * flat.element_size()
        if region_of(flat).span[1] > flat.untyped_storage().nbytes():  # it was freed
            return 0
        octets = _octets_at(flat.data_ptr(), size, _READ_ONLY)
        self._summed += min(size, _MOST_OF_ONE)
        if size <= _MOST_OF_ONE:
            return zlib.crc32(octets)
        count = _MOST_OF_ONE // _BLOCK
        starts = (at * (size - _BLOCK) // (count - 1) for at in range(count))
        return reduce(lambda total, start: zlib.crc32(octets[start : start + _BLOCK], total), starts, 0)
