"""Kept values that go to disk while the model runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from torchlens._files.shard import StorageCopies
from torchlens._files.values import StoredValues
from torchlens._files.writer import ValueWriter
from torchlens._values.geometry import storage_key
from torchlens._values.ghost import StorageKey
from torchlens.errors import MissingValueError


class Destination(Protocol):
    """Where the caller wants them."""

    @property
    def path(self) -> Path: ...
    @property
    def shard_bytes(self) -> int: ...
    @property
    def queue_bytes(self) -> int: ...


Describe = Callable[[int, int], Mapping[str, str | int | None]]
"""What to note beside the value of a (row, slot), so that it can be told without the trace."""


_REMEMBERED = 16
"""Storages of which it is known what was copied, the last ones: a view follows what it is of soon."""


class ToFiles:
    """Writes kept values to a new directory."""

    can_lose = True

    def __init__(self, destination: Destination, describe: Describe) -> None:
        self._destination = destination
        self._describe = describe
        self._written = WrittenValues(destination.path)
        self._writer: ValueWriter | None = None
        self._copies: dict[StorageKey, tuple[StorageWeakRef, int | None, StorageCopies]] = {}
        """By storage: whether it lives, its version counter, and what was copied of it since a write."""
        self._lent: set[StorageKey] = set()

    def open(self) -> None:
        where = self._destination
        self._writer = ValueWriter(where.path, shard_bytes=where.shard_bytes, queue_bytes=where.queue_bytes)

    def close(self) -> str | None:
        """Wait until all is written. What was lost and why, as one sentence; None if nothing was."""
        if self._writer is None:
            return None
        self._writer.close()
        missing = self._writer.missing()
        if not missing:
            return None
        reasons = ", ".join(sorted(set(missing.values())))
        count = "1 value was" if len(missing) == 1 else f"{len(missing)} values were"
        return f"{count} not written to {self._destination.path}: {reasons}."

    def put(self, tensor: Tensor, row: int, slot: int, last_row: int) -> WrittenValue:
        assert self._writer is not None
        key = f"{row}.{slot}"
        self._writer.put(key, tensor, self._describe(row, slot), shared_with=self._copies_of(tensor))
        return WrittenValue(self._written, key, last_row)

    def overwritten(self, tensor: Tensor) -> None:
        """The tensor's storage is about to be written."""
        self._copies.pop(storage_key(tensor), None)

    def lent(self, tensor: Tensor) -> None:
        """The tensor's memory was handed to code that writes unseen."""
        self._lent.add(storage_key(tensor))

    def _copies_of(self, tensor: Tensor) -> StorageCopies | None:
        """What was copied of the tensor's storage and still holds; None where that cannot be known."""
        key = storage_key(tensor)
        if key <= 0 or key in self._lent or tensor.is_inference():
            return None
        version = tensor._version
        # what is left of a storage that is gone lies in the memory that it had, and must go soon
        gone = [other for other, (storage, _, _) in self._copies.items() if storage.expired()]
        for other in gone or list(self._copies)[:-_REMEMBERED]:
            del self._copies[other]
        known = self._copies.get(key)
        if known is None or known[0].expired() or known[1] != version:
            known = self._copies[key] = StorageWeakRef(tensor.untyped_storage()), version, StorageCopies()
        return known[2]


class WrittenValues:
    """The values of one run on disk, opened at the first reading."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._values: StoredValues | None = None

    def read(self, key: str, what: str) -> Tensor:
        if self._values is None:
            self._values = StoredValues(self._path)
        reason = self._values.why_missing(key)
        if reason is not None:
            raise MissingValueError(f"the value of {what} is not on the disk: {reason}")
        return self._values[key]


class WrittenValue:
    """A value on disk."""

    __slots__ = ("_key", "_values", "row")

    def __init__(self, values: WrittenValues, key: str, row: int) -> None:
        self._values = values
        self._key = key
        self.row = row

    def read(self, what: str) -> Tensor:
        return self._values.read(self._key, what)

    def in_memory(self) -> None:
        """It takes none."""

    def gradient_edge(self) -> None:
        """It is no part of the graph."""
