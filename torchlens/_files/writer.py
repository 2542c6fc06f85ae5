"""Writing values: the model's thread takes snapshots, another one brings them to the disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from weakref import finalize

from torch import Tensor

from torchlens._files.dtypes import NAMES, code_of
from torchlens._files.extent import Extent, NoElementsError, copy_elements, extent_of, plain_tensor
from torchlens._files.index import IndexWriter
from torchlens._files.layout import INDEX, QUEUE_BYTES, SHARD_BYTES, About, ValueLine
from torchlens._files.manifest import Manifest, write_manifest
from torchlens._files.shard import Blob, StorageCopies
from torchlens._files.stream import Stream
from torchlens._unseen import unseen
from torchlens.errors import PathTakenError, UnwritablePathError


class ValueWriter:
    """Streams tensors to a new directory in a background thread.

    Memory: `queue_bytes` and one shard; more only for a single value that is larger, and about 200 bytes a
    value for its key. Shards are at most `shard_bytes`, or `queue_bytes` if that is less, except for larger
    values, which have one of their own. What is on the disk is finished shards: a killed process loses what
    waits in memory, and the index says which values those are.

    Raises `PathTakenError` if anything is at `path`, `UnwritablePathError` if the directory can't be made.
    """

    def __init__(self, path: Path, *, shard_bytes: int = SHARD_BYTES, queue_bytes: int = QUEUE_BYTES) -> None:
        directory = Path(os.path.abspath(path))
        index = _open_directory(directory)
        try:
            self._stream = Stream(directory, index, shard_bytes, queue_bytes)
        except BaseException:  # as where no thread can be started
            index.close()
            shutil.rmtree(directory, ignore_errors=True)
            raise
        self._keys: set[str] = set()
        self._closed = False
        self._dropped = finalize(self, self._stream.end, complete=False)
        self._dropped.atexit = False  # the stream has its own way to end then

    def put(
        self, key: str, tensor: Tensor, about: About, *, shared_with: StorageCopies | None = None
    ) -> None:
        """Take a snapshot of a tensor; it is written later, under a key that no other value has.

        Waits while the memory for snapshots is full. Never raises for a failing disk, nor for a tensor that
        can't be written: the value counts as missing then. `shared_with` is the token of the tensor's
        storage: what an earlier snapshot of it has is not copied again. See `StorageCopies`.
        """
        _check_words(key, about)
        if not self._stream.is_ours:  # and the lock may be held for ever
            self._stream.miss(key, about, "it was put in a fork of the process that writes")
            return
        with self._stream.lock:
            if self._closed:
                raise ValueError(f"value {key!r} was put after close(); put it before")
            if key in self._keys:
                raise ValueError(f"two values have the key {key!r}; give each one of its own")
            self._keys.add(key)
            try:
                self._put(key, tensor, about, shared_with)
            except NoElementsError as error:
                self._stream.miss(key, about, str(error))
            except (RuntimeError, MemoryError) as error:  # a device's memory, a backend without storages
                self._stream.miss(key, about, f"it could not be copied: {type(error).__name__}: {error}")

    def _put(self, key: str, tensor: Tensor, about: About, copies: StorageCopies | None) -> None:
        stream = self._stream
        if stream.failure is not None:
            raise NoElementsError(stream.failure)
        with unseen():
            plain = plain_tensor(tensor)
            extent = extent_of(plain)
            found = copies.find(extent, plain.itemsize) if copies is not None else None
            if found is None:
                blob, offset, stride = self._copy(plain, extent), 0, extent.stride
                if copies is not None and blob is not None:
                    copies.add(blob)
            else:
                blob, offset = found
                stride = extent.source_stride if blob.extent.verbatim else extent.stride
            name, number = NAMES[plain.dtype], None if blob is None else blob.number
            line = ValueLine(
                key, about, name, extent.shape, stride, offset, number, plain.is_conj(), plain.is_neg()
            )
        if not stream.note(line):
            raise NoElementsError(stream.failure or "")
        if blob is not None and not blob.contents.finished:
            blob.contents.keys.append(key)
        stream.seal_if_full()

    def _copy(self, tensor: Tensor, extent: Extent) -> Blob | None:
        """The blob that the elements were copied to; None if there are none."""
        if not extent.nbytes:
            return None
        shard = self._stream.room(extent.nbytes)
        if shard is None:
            raise NoElementsError(self._stream.failure or "the process ended before it was written")
        copy_elements(tensor, extent, shard.buffer, shard.begin)
        code, count = code_of(tensor.dtype)
        shape = _shape_in_file(extent, count, tensor)
        number = shard.add(code, shape, extent.nbytes)
        return Blob(number, extent, tensor.itemsize, shard.contents)

    def close(self) -> None:
        """Write what was put, complete the manifest and end the thread. Idempotent; waits for all of it."""
        if not self._stream.is_ours:
            return
        with self._stream.lock:
            if not self._closed:
                self._stream.seal()
                self._stream.end(complete=True)
                self._dropped.detach()
                self._closed = True
        self._stream.join()

    @property
    def failure(self) -> str | None:
        """What ended the writing before its time, as a full disk does; None while all is well."""
        return self._stream.failure

    def missing(self) -> Mapping[str, str]:
        """Reasons by key of the values that were put and can't be read; final once closed."""
        return {key: line.reason for key, line in self._stream.missing.items()}


def _check_words(key: str, about: About) -> None:
    """What can't be read back must not get into the index."""
    words = [key, *about]
    wrong = [word for word in words if type(word) is not str]
    wrong += [item for item in about.values() if type(item) not in (str, int, bool, type(None))]
    if wrong:
        found = ", ".join(f"{item!r} ({type(item).__name__})" for item in wrong)
        raise TypeError(f"value {key!r}: {found} cannot be written; give strings, integers or None")


def _shape_in_file(extent: Extent, count: int, tensor: Tensor) -> tuple[int, ...]:
    """The blob's shape for whoever opens the shard without the index: the value's own where it fits."""
    shape = extent.shape if tensor.is_contiguous() else (extent.nbytes // tensor.itemsize,)
    return shape if count == 1 else (*shape, count)


def _open_directory(directory: Path) -> IndexWriter:
    """Make the directory with an unfinished manifest and an empty index; nothing is left if that fails."""
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        directory.mkdir()
    except FileExistsError as error:
        if os.path.lexists(directory):
            raise PathTakenError(
                f"{directory} exists already; nothing is overwritten: give a path that does not exist"
            ) from error
        raise _unwritable(directory, error) from error
    except OSError as error:
        raise _unwritable(directory, error) from error
    try:
        index = IndexWriter(directory / INDEX)
        try:
            write_manifest(directory, Manifest(status="unfinished"))
        except BaseException:
            index.close()
            raise
    except BaseException as error:
        shutil.rmtree(directory, ignore_errors=True)  # it is ours: `mkdir` made it
        if isinstance(error, OSError):
            raise _unwritable(directory, error) from error
        raise
    return index


def _unwritable(directory: Path, error: OSError) -> UnwritablePathError:
    return UnwritablePathError(
        error.errno, f"{directory} cannot be written: {error.strerror}; give a path on a disk with room"
    )
