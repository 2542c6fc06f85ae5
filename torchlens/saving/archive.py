"""The parts of a saved trace: files of a directory, or members of one zip file that stores them as they are.

Nothing here trusts what it reads: the names are a closed list, every part is a regular file or an
uncompressed member that lies within its zip, and its size is known before it is read.
"""

from __future__ import annotations

import os
import secrets
import shutil
import zipfile
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISREG
from typing import IO, Final, Protocol, TypeAlias

from torchlens._files.durable import UNFINISHED, Octets, new_file, sync_directory
from torchlens.errors import (
    DamagedFileError,
    FileFormatError,
    PathNotFoundError,
    PathTakenError,
    UnwritablePathError,
)
from torchlens.saving.layout import MANIFEST, RECORD, SHARD_NAME, SUFFIX, TABLES, table_name

ALIGNMENT: Final = 64
"""Of each part in a zip, and of each storage in a part: the kernels' own."""
_LOCAL_HEADER: Final = 30
"""Bytes before the name; https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT, 4.3.7."""
_SIGNATURE: Final = b"PK\3\4"
_ZIP64: Final = 20
"""Bytes of the field that holds sizes beyond 32 bits."""
_PADDING: Final = b"tl"
"""The id of the field that aligns a member."""
_ENCRYPTED: Final = 1
_KNOWN: Final = frozenset([MANIFEST, RECORD, *map(table_name, TABLES)])

Put: TypeAlias = Callable[[str, Iterable[Octets]], None]
"""Writes a part: its name, then its bytes in pieces."""


@contextmanager
def new_archive(path: Path) -> Generator[Put]:
    """Give a function that writes a part; when the body ends, all of it is on the disk under its name.

    If the body or the disk fails, nothing is there. `PathTakenError` if anything is at the path.
    """
    refuse_taken(path)
    unfinished = path.with_name(
        f"{path.name}.{secrets.token_hex(4)}{UNFINISHED}"
    )  # a killed one may be there
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.name.endswith(SUFFIX):
            with _new_zip(path, unfinished) as write:
                yield write
        else:
            with _new_directory(path, unfinished) as write:
                yield write
    except OSError as error:
        if isinstance(error, PathTakenError):
            raise
        raise UnwritablePathError(
            error.errno, f"{path} cannot be written: {error.strerror}; give a path on a disk with room"
        ) from error


def refuse_taken(path: Path) -> None:
    """Raise `PathTakenError` if anything is at a path."""
    if os.path.lexists(path):
        raise PathTakenError(
            f"{path} exists already; nothing is overwritten: give a path that does not exist"
        )


@contextmanager
def _new_directory(path: Path, unfinished: Path) -> Generator[Put]:
    unfinished.mkdir()

    def put(name: str, content: Iterable[Octets]) -> None:
        with new_file(unfinished / name) as write:
            for octets in content:
                write(octets)

    try:
        yield put
        refuse_taken(path)
        os.rename(unfinished, path)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    sync_directory(path.parent)


@contextmanager
def _new_zip(path: Path, unfinished: Path) -> Generator[Put]:
    with open(unfinished, "xb") as file:
        try:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:

                def put(name: str, content: Iterable[Octets]) -> None:
                    with archive.open(_member(name, file.tell()), "w", force_zip64=True) as part:
                        for octets in content:
                            part.write(octets)

                yield put
            file.flush()
            os.fsync(file.fileno())
            refuse_taken(path)
            os.rename(unfinished, path)
        except BaseException:
            os.unlink(unfinished)
            raise
    sync_directory(path.parent)


def _member(name: str, at: int) -> zipfile.ZipInfo:
    """A member that begins `at` a byte, its header as long as it must be for the data to be aligned."""
    member = zipfile.ZipInfo(name)  # dated 1980: the same trace gives the same bytes
    begin = at + _LOCAL_HEADER + len(name) + _ZIP64 + 4
    gap = -begin % ALIGNMENT
    member.extra = _PADDING + gap.to_bytes(2, "little") + b"\0" * gap
    return member


class Archive(Protocol):
    """The parts of a saved trace, to be read."""

    path: Path

    def names(self) -> frozenset[str]:
        """The parts that are there."""
        ...

    def size(self, name: str) -> int:
        """Bytes of a part that is there."""
        ...

    def read(self, name: str) -> bytes:
        """All bytes of a part that is there."""
        ...

    def place(self, name: str) -> tuple[Path, int]:
        """The file that a part lies in, and its first byte there."""
        ...


def open_archive(path: Path) -> Archive:
    """The saved trace at a path; a typed error where there is none."""
    if not path.exists():
        raise PathNotFoundError(f"there is no {path}; give the path that tl.save wrote")
    try:
        found = Directory(path) if path.is_dir() else ZipFile(path)
    except OSError as error:
        raise DamagedFileError(f"{path} cannot be read: {error.strerror}; copy it again") from error
    if MANIFEST not in found.names():
        raise FileFormatError(
            f"{path} has no {MANIFEST}: it is no saved trace; give the path that tl.save wrote"
        )
    return found


class Directory:
    """Parts that are files of a directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._sizes: dict[str, int] = {}
        for name in os.listdir(path):
            if _is_part(name):
                found = os.lstat(path / name)  # a link could lead anywhere
                if not S_ISREG(found.st_mode):
                    raise DamagedFileError(f"{path / name} is no regular file; copy the directory again")
                self._sizes[name] = found.st_size

    def names(self) -> frozenset[str]:
        """The files that are parts of a trace."""
        return frozenset(self._sizes)

    def size(self, name: str) -> int:
        """Its size when the directory was opened."""
        return self._sizes[name]

    def read(self, name: str) -> bytes:
        """No more than that size."""
        with open(self.path / name, "rb") as file:
            return file.read(self._sizes[name])

    def place(self, name: str) -> tuple[Path, int]:
        """The part is a file of its own."""
        return self.path / name, 0


class ZipFile:
    """Parts that are members of a zip file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._places: dict[str, tuple[int, int]] = {}
        if not S_ISREG(os.stat(path).st_mode):
            raise FileFormatError(f"{path} is no regular file; give the path that tl.save wrote")
        with open(path, "rb") as file:
            try:
                members = zipfile.ZipFile(file).infolist()
            except (zipfile.BadZipFile, ValueError, NotImplementedError, UnicodeDecodeError) as error:
                begins = file.seek(0) or file.read(len(_SIGNATURE))
                found = "was cut off or changed" if begins == _SIGNATURE else "is no saved trace"
                raise FileFormatError(f"{path} {found}; give the path that tl.save wrote") from error
            length = file.seek(0, os.SEEK_END)
            for member in members:
                if not _is_part(member.filename) or member.filename in self._places:
                    raise DamagedFileError(
                        f"{path} has a part {member.filename[:80]!r}, which no saved trace has, or has twice"
                    )
                self._places[member.filename] = _place_of(member, file, path, length)

    def names(self) -> frozenset[str]:
        """The members of the zip."""
        return frozenset(self._places)

    def size(self, name: str) -> int:
        """Its size, which lies within the zip."""
        return self._places[name][1]

    def read(self, name: str) -> bytes:
        """As it is stored."""
        begin, nbytes = self._places[name]
        with open(self.path, "rb") as file:
            file.seek(begin)
            return file.read(nbytes)

    def place(self, name: str) -> tuple[Path, int]:
        """The part lies in the zip."""
        return self.path, self._places[name][0]


def _place_of(member: zipfile.ZipInfo, file: IO[bytes], path: Path, length: int) -> tuple[int, int]:
    """First byte and size of a member's data; a typed error unless it lies in the file as it is."""
    stored = member.compress_type == zipfile.ZIP_STORED and member.file_size == member.compress_size
    if not stored or member.flag_bits & _ENCRYPTED:
        raise DamagedFileError(f"{path} has {member.filename} compressed or encrypted; tl.save does neither")
    if not 0 <= member.header_offset <= length:
        raise DamagedFileError(f"{path} ends before its part {member.filename} begins; copy it again")
    file.seek(member.header_offset)
    header = file.read(_LOCAL_HEADER)
    if len(header) < _LOCAL_HEADER or not header.startswith(_SIGNATURE):
        raise DamagedFileError(f"{path} has no {member.filename} where it should be; copy it again")
    skipped = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
    begin = member.header_offset + _LOCAL_HEADER + skipped
    if begin + member.file_size > length:
        raise DamagedFileError(f"{path} ends before its part {member.filename} does; copy it again")
    return begin, member.file_size


def _is_part(name: str) -> bool:
    return name in _KNOWN or SHARD_NAME.fullmatch(name) is not None
