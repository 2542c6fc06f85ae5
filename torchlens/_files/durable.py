"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISREG
from typing import Final, TypeAlias

from torchlens.errors import DamagedFileError

Octets: TypeAlias = bytes | memoryview
UNFINISHED: Final = ".part"
"""What the name of a file ends with until all of it is on the disk."""


@contextmanager
def new_file(path: Path) -> Generator[Callable[[Octets], None]]:
    """Give a function that writes; when the body ends, the file is on the disk and has its name.

    If the body or the disk fails there is no file of that name, or the old one, and the space is free again.
    """
    unfinished = path.with_name(path.name + UNFINISHED)
    try:
        with open(unfinished, "wb", buffering=0) as file:
            yield lambda octets: write_all(file.fileno(), octets)
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(unfinished)
        raise
    sync_directory(path.parent)


def write_all(descriptor: int, octets: Octets) -> None:
    """Write all of it: one call may write less, as when the disk fills up."""
    rest = memoryview(octets)
    while len(rest):
        rest = rest[os.write(descriptor, rest) :]


def sync_directory(path: Path) -> None:
    """Make the names in a directory last through a power cut, on file systems that can."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read_file(path: Path) -> bytes:
    """All bytes of a regular file: a pipe of that name would wait for ever."""
    check_regular(path)
    return path.read_bytes()


def check_regular(path: Path) -> os.stat_result:
    """The file's facts; a `DamagedFileError` if it is no regular file."""
    found = path.stat()
    if not S_ISREG(found.st_mode):
        raise DamagedFileError(f"{path} is no regular file; give the directory as it was written")
    return found
