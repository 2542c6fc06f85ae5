"""A shard in memory: the file mapped, its header checked, its blobs as storages of their own."""

from __future__ import annotations

import hashlib
import zlib
from math import prod
from pathlib import Path
from typing import Final, cast

import torch

from torchlens._files.dtypes import WIDTHS
from torchlens._files.durable import check_regular
from torchlens._files.layout import ShardLine
from torchlens._files.sealed import Fields, as_object, parse
from torchlens._files.shard import ALIGNMENT
from torchlens.errors import DamagedFileError

_CHUNK: Final = 2**22


class MappedShard:
    """The blobs of a shard file. Pages are read when they are touched; writes stay in this process.

    Each blob is a storage of its own over the one mapping, which is let go with the last of them.
    """

    def __init__(self, directory: Path, line: ShardLine) -> None:
        path = directory / line.name
        size = _size_of(path)
        if size != line.nbytes:
            raise DamagedFileError(f"{path} has {size} bytes, {line.nbytes} were written; copy it again")
        try:
            self._ranges = _ranges_in(path, line)
            self._storage = torch.UntypedStorage.from_file(str(path), False, size)
        except (ValueError, OSError, RuntimeError) as error:
            raise DamagedFileError(f"{path} is damaged: {error}; copy it again") from error

    def blob(self, number: int) -> torch.UntypedStorage:
        """A blob's bytes; a KeyError if the shard does not hold it."""
        begin, end = self._ranges[number]
        return cast("torch.UntypedStorage", self._storage[begin:end])


def _size_of(path: Path) -> int:
    try:
        return check_regular(path).st_size
    except OSError as error:
        raise DamagedFileError(f"{path} cannot be opened: {error.strerror}; copy it again") from error


def _ranges_in(path: Path, line: ShardLine) -> dict[int, tuple[int, int]]:
    """By blob, its first byte in the file and one past its last; a `ValueError` for an unsound header."""
    with open(path, "rb") as file:
        length = file.read(8)
        size = int.from_bytes(length, "little")
        if size + 8 > line.nbytes:
            raise ValueError(f"its header claims {size} bytes")
        text = file.read(size)
    if zlib.crc32(length + text) != line.header_crc32:
        raise ValueError("its header is not the one that was written")
    header = as_object(parse(text))
    spans = {name: _span(Fields(entry)) for name, entry in header.items() if name != "__metadata__"}
    at, start = 0, size + 8
    for begin, end in sorted(spans.values()):
        if begin != at:
            raise ValueError(f"byte {at} of its data belongs to no blob, or to several")
        at = end
    if start + at != line.nbytes:
        raise ValueError(f"its blobs have {at} bytes, the file {line.nbytes - start}")
    ranges: dict[int, tuple[int, int]] = {}
    for number in range(line.first, line.first + line.count):
        if str(number) not in spans:
            raise ValueError(f"it has no blob {number}")
        begin, end = spans[str(number)]
        if (start + begin) % ALIGNMENT:
            raise ValueError(f"its blob {number} begins at byte {start + begin}, where no number may")
        ranges[number] = (start + begin, start + end)
    return ranges


def _span(entry: Fields) -> tuple[int, int]:
    code, shape, offsets = entry.text("dtype"), entry.counts("shape"), entry.counts("data_offsets")
    if len(offsets) != 2 or code not in WIDTHS:
        raise ValueError(f"it has an entry of type {code[:20]!r} with {len(offsets)} offsets")
    begin, end = offsets
    if end - begin != prod(shape) * WIDTHS[code]:
        raise ValueError(f"it has {end - begin} bytes for shape {list(shape)} of {code}")
    return begin, end


def check_hash(directory: Path, line: ShardLine) -> None:
    """Read a whole shard and raise `DamagedFileError` unless it is byte for byte what was written."""
    path = directory / line.name
    _size_of(path)
    sha256 = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            sha256.update(chunk)
    if sha256.hexdigest() != line.sha256:
        raise DamagedFileError(f"{path} is not what was written: its hash differs; copy it again")
