"""Memory that was handed out, to numpy for one: was it changed there?

Torch hears nothing of a write through a numpy array. When a tensor's memory is handed out its bytes are
summed up, and when the capture ends they are summed up again, as they were at that moment: rebuilt by undoing
every write that was recorded since. Where the sums differ, something else wrote.
"""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

from torch import Tensor

from torchlens._capture.doubts import Doubts
from torchlens._records import ReasonName
from torchlens._values.geometry import flat_span, is_wrapper, region_of, storage_key
from torchlens._values.ledger import Ledger
from torchlens._values.store import ValueStore
from torchlens._values.unseen import unseen
from torchlens._values.versions import version_of
from torchlens.errors import OverwrittenError

_READS: Final[dict[str, ReasonName]] = {
    "numpy": "write_through_numpy",
    "__array__": "write_through_numpy",
    "__dlpack__": "write_through_numpy",
    "untyped_storage": "unexplained_write",
    "storage": "unexplained_write",
}
"""Reads that hand out memory, and what a write through it is called."""
_MOST_BYTES: Final = 16 << 20
"""Summed up of one tensor: 4 ms. Of a larger one, blocks at even distances."""
_BLOCK: Final = 4096


@dataclass(slots=True)
class _Sum:
    span: Tensor
    """The memory from the tensor's first to its last element, flat."""
    row: int
    """How many rows there were."""
    digest: int
    reason: ReasonName


class HandedOut:
    """The memory that one capture saw being handed out."""

    def __init__(self, rows: list[tuple[Any, ...]], ledger: Ledger) -> None:
        self._rows = rows
        self._ledger = ledger
        self._sums: list[_Sum] = []
        self._last: dict[tuple[int, tuple[int, int]], tuple[object, ...]] = {}
        """By storage and span, the state for which there is a sum."""

    def leaves(self, name: str, tensor: Tensor) -> None:
        """A read hands out the tensor's memory, if it is one of those."""
        reason = _READS.get(name)
        key = storage_key(tensor)
        if (
            reason is None
            or key < 0
            or is_wrapper(tensor)
            or tensor.device.type != "cpu"
            or not tensor.numel()
        ):
            return
        place = (key, region_of(tensor).span)
        state = (version_of(tensor), len(self._ledger.writes.get(key, ())))
        if self._last.get(place) == state:
            return
        self._last[place] = state
        with unseen():
            span = flat_span(tensor)
            self._sums.append(_Sum(span, len(self._rows), _digest(span), reason))

    def changed(self, store: ValueStore) -> Iterator[tuple[ReasonName, int, Tensor]]:
        """Reason, number of rows when it was handed out, and memory, of what has been changed since."""
        for each in self._sums:
            try:
                then = store.read(each.span, each.row - 1, after=True, what="memory that was handed out")
            except OverwrittenError:  # it was not saved, or freed
                continue
            if _digest(then) != each.digest:
                yield each.reason, each.row, each.span


def note_changes(handed_out: HandedOut, store: ValueStore, ledger: Ledger, end: int, doubts: Doubts) -> None:
    """Say which memory was changed by no op. Its older values, before row `end`, can't be had any more."""
    with unseen():
        for reason, row, span in list(handed_out.changed(store)):
            doubts.add(reason, row)
            ledger.lose(span, end, "something beside torch's ops wrote there, through numpy or the storage")


def _digest(flat: Tensor) -> int:
    """A checksum of the bytes. They are read at their address: `numpy()` would forbid the storage to grow."""
    size = flat.numel() * flat.element_size()
    octets = memoryview((ctypes.c_char * size).from_address(flat.data_ptr())).cast("B")
    if size <= _MOST_BYTES:
        return zlib.crc32(octets)
    count = _MOST_BYTES // _BLOCK
    starts = (at * (size - _BLOCK) // (count - 1) for at in range(count))
    return reduce(lambda total, start: zlib.crc32(octets[start : start + _BLOCK], total), starts, 0)
