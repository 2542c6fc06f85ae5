"""The manifest of a saved trace: which parts it has, how large they are, and the hashes of their bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from torchlens._files.sealed import Fields, as_object, parse, unseal
from torchlens.errors import FileFormatError
from torchlens.saving.archive import Archive
from torchlens.saving.layout import FORMAT, MANIFEST, RECORD, SHARD_NAME, TABLES, VERSION, table_name

_MOST_MANIFEST: Final = 2**24
"""Bytes. Its parts are a dozen and a file for each GiB of values."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What it says of each part."""

    parts: Mapping[str, Fields]
    """By name of the file."""

    def shards(self) -> dict[int, int]:
        """Sizes of the safetensors files, by number."""
        names = [name for name in self.parts if SHARD_NAME.fullmatch(name)]
        return {int(name[7:12]): self.parts[name].count("bytes") for name in names}


def read_manifest(archive: Archive) -> Manifest:
    """The manifest, after a look at whether every part is there in its size; a `ValueError` if not."""
    if archive.size(MANIFEST) > _MOST_MANIFEST:
        raise ValueError(f"its manifest has {archive.size(MANIFEST)} bytes")
    octets = archive.read(MANIFEST)
    fields = Fields(parse(octets))  # a later version may have no checksum
    kind, version = (fields.any(name) if name in fields else None for name in ("format", "version"))
    if kind != FORMAT or type(version) is not int or version != VERSION:
        raise FileFormatError(
            f"{archive.path} says format {str(kind)[:40]!r}, version {str(version)[:40]}; this release reads "
            f"{FORMAT!r}, version {VERSION}: read it with the release that wrote it"
        )
    parts = {name: Fields(part) for name, part in as_object(Fields(unseal(octets)).any("parts")).items()}
    for name, part in parts.items():
        if name not in archive.names():
            raise ValueError(f"its part {name[:80]!r} is missing")
        if archive.size(name) != part.count("bytes"):
            raise ValueError(f"{name} has {archive.size(name)} bytes, {part.count('bytes')} were written")
    if missing := {RECORD, *map(table_name, TABLES)} - parts.keys():
        raise ValueError(f"its manifest does not name {min(missing)}")
    return Manifest(parts)
