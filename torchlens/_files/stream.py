"""The thread that writes shards while the model goes on, and what it shares with the model's thread."""

from __future__ import annotations

import atexit
import errno
import hashlib
import os
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Final

from torchlens._files.buffers import Buffers
from torchlens._files.durable import new_file
from torchlens._files.index import IndexWriter
from torchlens._files.layout import About, FailureLine, Line, MissingLine, ShardLine, shard_name
from torchlens._files.manifest import Manifest, write_manifest
from torchlens._files.shard import Contents, Shard

_CHUNK: Final = 2**22
_BYTES_OF_AN_ENTRY: Final = 1024
"""What a blob is taken to cost besides its elements: bounds the headers of shards of tiny values."""


@dataclass(frozen=True, slots=True)
class _End:
    complete: bool


class Stream:
    """Writes shards in a thread of its own.

    Nothing of it raises for a failing disk: `failure` is set, once, and what is not on the disk then is
    missing. Holds no reference to the `ValueWriter`, so that the thread ends when that is dropped.
    """

    def __init__(self, directory: Path, index: IndexWriter, shard_bytes: int, queue_bytes: int) -> None:
        self.failure: str | None = None
        self.missing: dict[str, MissingLine] = {}
        self._directory = directory
        self._index = index
        self._capacity = min(shard_bytes, queue_bytes)
        self._buffers = Buffers(self._capacity, queue_bytes + self._capacity)
        self._filling: Shard | None = None
        self._next_blob = 0
        self._awaited_blob = 0
        self._process = os.getpid()
        self.lock = Lock()
        """Held while a value is put, and while the last shard is taken."""
        self._sealed: SimpleQueue[Shard | _End] = SimpleQueue()
        self._finished: list[ShardLine] = []
        self._lost: list[Contents] = []
        self._thread = Thread(target=self._run, name="torchlens values", daemon=True)
        self._thread.start()
        atexit.register(self._exit)  # a daemon dies in the middle of a write otherwise

    # On the model's thread

    @property
    def is_ours(self) -> bool:
        """Whether this is the process that writes: a fork of it has no thread, and shares the files."""
        return os.getpid() == self._process

    def room(self, nbytes: int) -> Shard | None:
        """The shard whose `begin` has room for so many bytes; waits for memory. None after a failure."""
        shard = self._filling
        if shard is not None:
            is_long = shard.count * _BYTES_OF_AN_ENTRY >= max(self._capacity, 64 * _BYTES_OF_AN_ENTRY)
            if not is_long and not shard.is_sealed and shard.begin + nbytes <= shard.buffer.nbytes:
                return shard
            self.seal()
        buffer = self._buffers.take(nbytes)
        if buffer is None:
            return None
        self._filling = Shard(buffer, self._next_blob)
        return self._filling

    def seal(self) -> None:
        """Hand the shard that is being filled to the thread.

        After a Ctrl-C in the middle it is handed over again: the thread takes it once.
        """
        shard = self._filling
        if shard is not None:
            shard.is_sealed = True
            self._next_blob = shard.first + shard.count
            self._sealed.put(shard)
            self._filling = None

    def seal_if_full(self) -> None:
        """Hand the shard over if another value of its size would not fit anyway."""
        if self._filling is not None and self._filling.nbytes >= self._capacity:
            self.seal()

    def note(self, line: Line) -> bool:
        """Append a line to the index; False if the disk does not take it."""
        try:
            self._index.append(line)
        except OSError as error:
            self._fail(_reason(error, "the index"))
            return False
        return True

    def miss(self, key: str, about: About, reason: str) -> None:
        """Count a value as missing."""
        line = MissingLine(key, about, reason)
        self.missing[key] = line
        if self.is_ours:
            with suppress(OSError):  # the manifest has it as well
                self._index.append(line)

    def end(self, *, complete: bool) -> None:
        """Tell the thread to write what was put and to end. May be called by the garbage collector."""
        if self.is_ours:
            self._sealed.put(_End(complete))

    def join(self) -> None:
        """Wait for the thread to have ended."""
        if self.is_ours:
            self._thread.join()

    def _exit(self) -> None:
        if self.is_ours:
            self._buffers.shut()  # nobody shall hold the lock and wait for memory
            self.end(complete=False)
            self._thread.join()

    # On the thread

    def _run(self) -> None:
        fault: Exception | None = None
        while not isinstance(item := self._sealed.get(), _End):
            fault = self._write_or_lose(item) or fault
            del item  # its buffer is in use again
        self._buffers.shut()
        with self.lock:
            self.seal()
        with suppress(Empty):
            while True:  # told to end by a dropped writer and by the interpreter's end, perhaps
                if isinstance(rest := self._sealed.get_nowait(), Shard):
                    fault = self._write_or_lose(rest) or fault
        self._finish(complete=item.complete)
        atexit.unregister(self._exit)
        try:
            if fault is not None:  # no failing disk but a mistake of ours: `threading.excepthook` shows it
                raise fault
        finally:
            fault = None

    def _write_or_lose(self, shard: Shard) -> Exception | None:
        fault: Exception | None = None
        if shard.first < self._awaited_blob:
            return None
        self._awaited_blob = shard.first + shard.count
        if self.failure is None:
            try:
                self._write(shard)
            except (OSError, MemoryError) as error:
                self._fail(_reason(error, "a shard"))
            except Exception as error:  # noqa: BLE001 - raised when the thread ends
                self._fail(f"{type(error).__name__}: {error}")
                fault = error
        if not shard.contents.finished:
            self._lost.append(shard.contents)
        self._buffers.give_back(shard.buffer)
        return fault

    def _write(self, shard: Shard) -> None:
        name = shard_name(len(self._finished))
        header, octets = shard.header(), shard.octets()
        sha256 = hashlib.sha256()
        with new_file(self._directory / name) as write:
            for part in (memoryview(header), *_chunks(octets)):
                sha256.update(part)
                write(part)
            size, crc = len(header) + shard.nbytes, zlib.crc32(header)
            line = ShardLine(name, size, sha256.hexdigest(), crc, shard.first, shard.count)
            self._index.append(line)  # before the file has its name: without the line nobody finds its blobs
            self._index.sync()
        self._finished.append(line)
        shard.contents.finished = True

    def _fail(self, reason: str) -> None:
        if self.failure is None:
            self.failure = reason
            self._buffers.shut()
            with suppress(OSError):  # the manifest has it as well
                self._index.append(FailureLine(reason))

    def _finish(self, *, complete: bool) -> None:
        """Write the manifest; the one that is there says unfinished already, which is then true."""
        for contents in self._lost:
            for key in contents.keys:
                self.missing.setdefault(key, MissingLine(key, {}, self.failure or "it was not written"))
        if complete or self.failure is not None:
            try:
                self._index.sync()
                write_manifest(
                    self._directory,
                    Manifest(
                        status="unfinished" if self.failure is not None else "complete",
                        failure=self.failure,
                        index_bytes=self._index.nbytes,
                        shards=self._finished,
                        missing=list(self.missing.values()),
                    ),
                )
            except OSError as error:
                self._fail(_reason(error, "the manifest"))
        with suppress(OSError):
            self._index.close()


def _chunks(octets: memoryview) -> list[memoryview]:
    """Parts small enough to be in the processor's cache for hashing and writing."""
    return [octets[at : at + _CHUNK] for at in range(0, len(octets), _CHUNK)]


def _reason(error: OSError | MemoryError, what: str) -> str:
    if isinstance(error, OSError) and error.errno is not None:
        code = errno.errorcode.get(error.errno, str(error.errno))
        return f"{what} could not be written: {error.strerror} ({code})"
    return f"{what} could not be written: {type(error).__name__}: {error}"
