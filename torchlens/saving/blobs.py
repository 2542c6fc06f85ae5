"""The bytes of storages: how they are written to safetensors files, and mapped from there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

import torch
from torch import Tensor

from torchlens._files.dtypes import NAMES, code_of
from torchlens._unseen import unseen
from torchlens.errors import DamagedFileError
from torchlens.saving.archive import ALIGNMENT, Archive, Put
from torchlens.saving.layout import shard_name

_SHARD_BYTES: Final = 2**30
"""A file ends with the storage that takes it past this size."""
_PIECE: Final = 2**24


@dataclass(slots=True)
class Blob:
    """The part of a storage that is kept, or that it has none."""

    source: Tensor | None
    """Its bytes, flat; None where none are kept."""
    nbytes: int
    dtype: torch.dtype
    low: int
    """Which byte of the storage is its first one."""
    shard: int | None = None
    begin: int = 0
    sha256: str = ""


@dataclass(slots=True)
class _Shard:
    number: int
    blobs: list[tuple[int, Blob]] = field(default_factory=list[tuple[int, Blob]])
    nbytes: int = 0

    def add(self, number: int, blob: Blob) -> None:
        blob.shard, blob.begin = self.number, self.nbytes
        self.blobs.append((number, blob))
        self.nbytes += -(-blob.nbytes // ALIGNMENT) * ALIGNMENT


def write_blobs(blobs: Sequence[Blob], put: Put) -> None:
    """Write the bytes of all blobs and note where they are."""
    shards: list[_Shard] = []
    for number, blob in enumerate(blobs):
        if blob.source is None or not blob.nbytes:
            continue
        if not shards or shards[-1].nbytes >= _SHARD_BYTES:
            shards.append(_Shard(len(shards)))
        shards[-1].add(number, blob)
    for shard in shards:
        put(shard_name(shard.number), _content_of(shard))


def _content_of(shard: _Shard) -> Iterator[bytes | memoryview]:
    """A safetensors file: a header with all places first, then the bytes, with gaps that have a name too."""
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    for number, blob in shard.blobs:
        end = blob.begin + blob.nbytes
        code, shape = _elements(blob)
        entries[str(number)] = {"dtype": code, "shape": shape, "data_offsets": (blob.begin, end)}
        if gap := -end % ALIGNMENT:
            entries[f"{number}.gap"] = {"dtype": "U8", "shape": [gap], "data_offsets": (end, end + gap)}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % ALIGNMENT)
    yield len(text).to_bytes(8, "little") + text
    for _, blob in shard.blobs:
        blob.begin += 8 + len(text)
        sha256 = hashlib.sha256()
        for octets in _octets_of(blob):
            sha256.update(octets)
            yield octets
        blob.sha256 = sha256.hexdigest()
        yield b"\0" * (-blob.nbytes % ALIGNMENT)


def _elements(blob: Blob) -> tuple[str, Sequence[int]]:
    """What safetensors calls the elements, and how many there are; bytes where they don't fit."""
    if blob.dtype not in NAMES or blob.low % blob.dtype.itemsize or blob.nbytes % blob.dtype.itemsize:
        return "U8", [blob.nbytes]
    code, parts = code_of(blob.dtype)
    count = blob.nbytes // blob.dtype.itemsize
    return code, [count] if parts == 1 else [count, parts]


def _octets_of(blob: Blob) -> Iterator[memoryview]:
    assert blob.source is not None
    with unseen():
        for piece in cast("Sequence[Tensor]", blob.source.split(_PIECE)):
            yield memoryview(cast("bytes", piece.cpu().numpy()))


@dataclass(frozen=True, slots=True)
class Kept:
    """Where the bytes of a storage are, as the table of storages says it."""

    shard: int | None
    begin: int
    nbytes: int
    low: int
    sha256: str


class MappedBlobs:
    """The storages of a saved trace, mapped. Pages are read when touched; writes stay in this process.

    Each is a storage of its own over one mapping of its file, which is let go with the last of them. Whether
    the bytes are those that were written is found out by `verify`, which reads them.
    """

    def __init__(self, archive: Archive, kept: Sequence[Kept]) -> None:
        self._archive = archive
        self._kept = kept
        self._verified: set[int] = set()
        self._files: dict[int, torch.UntypedStorage] = {}
        self._bases: dict[int, Tensor] = {}

    def base(self, number: int) -> Tensor:
        """The bytes of a storage, flat; on the meta device where there are none."""
        base = self._bases.get(number)
        if base is None:
            kept = self._kept[number]
            if kept.shard is None:
                device = "meta" if kept.nbytes else "cpu"
                base = torch.empty(kept.nbytes, dtype=torch.uint8, device=device)
            else:
                file, start = self._file(kept.shard), self._archive.place(shard_name(kept.shard))[1]
                begin = start + kept.begin
                storage = cast("torch.UntypedStorage", file[begin : begin + kept.nbytes])
                base = torch.empty(0, dtype=torch.uint8, device="cpu")
                base.set_(storage, 0, (kept.nbytes,), (1,))
            self._bases[number] = base
        return base

    def _file(self, shard: int) -> torch.UntypedStorage:
        found = self._files.get(shard)
        if found is None:
            path, start = self._archive.place(shard_name(shard))
            size = start + self._archive.size(shard_name(shard))
            try:
                found = cast("torch.UntypedStorage", torch.UntypedStorage.from_file(str(path), False, size))
            except (OSError, RuntimeError, ValueError) as error:
                raise DamagedFileError(f"{path} cannot be mapped: {error}; copy it again") from error
            self._files[shard] = found
        return found

    def verify(self, number: int, what: str) -> None:
        """Raise `DamagedFileError` unless a storage has the bytes that were written; asked once."""
        if number in self._verified:
            return
        kept = self._kept[number]
        if kept.shard is not None:
            base = self._bases[number]
            found = hashlib.sha256(memoryview(cast("bytes", base.numpy()))).hexdigest()
            if found != kept.sha256:
                raise DamagedFileError(
                    f"{self._archive.path} is damaged: the bytes of {what} are not those that were written; "
                    "copy it again"
                )
        self._verified.add(number)


def check_places(archive: Archive, kept: Sequence[Kept], shards: Mapping[int, int]) -> None:
    """Raise a `ValueError` unless every storage lies in its file; `shards` has the size of each."""
    for number, each in enumerate(kept):
        if not 0 <= each.nbytes < 2**63 or not 0 <= each.low < 2**62 or each.low % ALIGNMENT:
            raise ValueError(f"storage {number} has {each.nbytes} bytes from byte {each.low} on")
        if each.shard is None:
            continue
        if each.shard not in shards or each.begin < 0 or each.begin % ALIGNMENT:
            raise ValueError(f"storage {number} begins at byte {each.begin} of file {each.shard}")
        if each.begin + each.nbytes > shards[each.shard]:
            raise ValueError(f"storage {number} ends beyond its file")
