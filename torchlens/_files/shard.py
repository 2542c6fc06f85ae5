"""A shard: the blobs of one safetensors file, while they gather in memory.

The format wants a header with all offsets first and no gap between the blobs. So the blobs are copied one
behind the other into one buffer, and the file is written when it is full: two writes, no further copy. (The
safetensors library takes each tensor's bytes as an object of its own, and writes where it likes.)
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field
from typing import Final, cast

from torch import Tensor

from torchlens._files.extent import Extent

ALIGNMENT: Final = 16
"""Of each blob in its file, so that it may be read as any type."""
_HEADER_ALIGNMENT: Final = 64
_RECENT: Final = 8


@dataclass(slots=True)
class Contents:
    """The keys that a shard holds, until it is on the disk."""

    keys: list[str] = field(default_factory=list[str])
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Blob:
    """Where the elements of an extent were copied to."""

    number: int
    extent: Extent
    itemsize: int
    contents: Contents

    def offset_of(self, extent: Extent, itemsize: int) -> int | None:
        """Elements from the blob's start at which another extent of the same storage begins in it.

        None if the blob does not have all its elements, or not where a tensor could begin.
        """
        own = self.extent
        if self.itemsize == itemsize and own == extent:
            return 0
        within = extent.low - own.low
        if not own.verbatim or within < 0 or extent.past > own.past or within % itemsize:
            return None
        return within // itemsize


class StorageCopies:
    """The copies already taken of one storage while nothing wrote to it: a token for `ValueWriter.put`.

    Make one for each storage, when the first value on it is put, and hand it in with every further value on
    that storage. Drop it when the storage is written to, by whatever: the next value takes a new one. A
    value whose elements an earlier copy has is then not copied again. The token holds no tensor.
    """

    __slots__ = ("_largest", "_recent")

    def __init__(self) -> None:
        self._recent: deque[Blob] = deque(maxlen=_RECENT)
        self._largest: Blob | None = None

    def find(self, extent: Extent, itemsize: int) -> tuple[Blob, int] | None:
        """A blob that has the elements and where they begin in it, among the largest and the last few."""
        for blob in (*self._recent, *((self._largest,) if self._largest is not None else ())):
            offset = blob.offset_of(extent, itemsize)
            if offset is not None:
                return blob, offset
        return None

    def add(self, blob: Blob) -> None:
        """Note a copy that was just taken."""
        self._recent.appendleft(blob)
        if self._largest is None or blob.extent.nbytes >= self._largest.extent.nbytes:
            self._largest = blob


@dataclass(slots=True)
class Entry:
    """A blob in the header."""

    name: str
    code: str
    shape: tuple[int, ...]
    begin: int
    end: int


class Shard:
    """Blobs in a buffer, and where each lies in it.

    A Ctrl-C in the middle of a call leaves it as it was before.
    """

    def __init__(self, buffer: Tensor, first: int) -> None:
        self.buffer = buffer
        self.first = first
        self.count = 0
        self.nbytes = 0
        self.is_sealed = False
        """Whether it was handed to the thread, or was about to be."""
        self.contents = Contents()
        self._entries: list[Entry] = []
        self._kept = 0

    @property
    def begin(self) -> int:
        """Where the next blob would begin."""
        return -(-self.nbytes // ALIGNMENT) * ALIGNMENT

    def add(self, code: str, shape: tuple[int, ...], nbytes: int) -> int:
        """Note the blob that was copied to `begin`; gives its number."""
        number, begin = self.first + self.count, self.begin
        del self._entries[self._kept :]  # what an interrupted call left
        if begin > self.nbytes:
            self._entries.append(Entry(f"{number}.gap", "U8", (begin - self.nbytes,), self.nbytes, begin))
        self._entries.append(Entry(str(number), code, shape, begin, begin + nbytes))
        self.nbytes, self.count, self._kept = begin + nbytes, self.count + 1, len(self._entries)
        return number

    def octets(self) -> memoryview:
        """The blobs and the gaps between them."""
        return memoryview(cast("bytes", self.buffer.numpy()))[: self.nbytes]

    def header(self) -> bytes:
        """The file up to the first blob."""
        entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
        for entry in self._entries[: self._kept]:
            offsets = (entry.begin, entry.end)
            entries[entry.name] = {"dtype": entry.code, "shape": entry.shape, "data_offsets": offsets}
        text = json.dumps(entries, separators=(",", ":")).encode()
        text += b" " * (-(len(text) + 8) % _HEADER_ALIGNMENT)
        return len(text).to_bytes(8, "little") + text
