"""The index, which is only ever appended to: whole lines, whatever the disk does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Lock

from torchlens._files.durable import read_file, write_all
from torchlens._files.layout import Line, line_of
from torchlens._files.sealed import seal, unseal
from torchlens.errors import DamagedFileError


class IndexWriter:
    """Appends lines, from the model's thread and the writing one."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "xb", buffering=0)  # noqa: SIM115 - open as long as the writer
        self._lock = Lock()

    @property
    def nbytes(self) -> int:
        """Length of the lines written."""
        return os.fstat(self._file.fileno()).st_size

    def append(self, line: Line) -> None:
        """Write a line, in one call so that a killed process leaves all of it or nothing.

        On an `OSError` the part that was written is taken back: the next line shall not continue it.
        """
        octets = seal(line.fields())
        descriptor = self._file.fileno()
        with self._lock:
            end = self.nbytes
            try:
                write_all(descriptor, octets)
            except OSError:
                with suppress(OSError):
                    os.ftruncate(descriptor, end)
                    os.lseek(descriptor, end, os.SEEK_SET)
                raise

    def sync(self) -> None:
        """Wait until all lines are on the disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def read_index(path: Path, nbytes: int | None) -> Iterator[Line]:
    """The lines of an index, which has `nbytes` where it was completed.

    In one that was not, what follows the last line's end is what a killed process had begun to write.
    """
    octets = read_file(path)
    if nbytes is not None and len(octets) != nbytes:
        raise DamagedFileError(f"{path} has {len(octets)} bytes, the manifest says {nbytes}; copy it again")
    lines = octets.split(b"\n")
    if lines.pop() and nbytes is not None:
        raise DamagedFileError(f"{path} ends within a line; copy it again")
    for number, line in enumerate(lines, 1):
        yield _read_line(line, number, path)


def _read_line(line: bytes, number: int, path: Path) -> Line:
    try:
        return line_of(unseal(line))
    except ValueError as error:
        raise DamagedFileError(f"line {number} of {path} is damaged: {error}; copy it again") from error
