"""The manifest: what a directory is, whether it was completed, its shards, and what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torchlens._files.durable import new_file, read_file
from torchlens._files.layout import (
    FORMAT,
    MANIFEST,
    VERSION,
    MissingLine,
    ShardLine,
    Status,
    shard_line_of,
)
from torchlens._files.sealed import Fields, parse, seal, unseal
from torchlens.errors import DamagedFileError, FileFormatError, PathNotFoundError


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """An unfinished one, written first, says nothing of shards: the index does."""

    status: Status
    failure: str | None = None
    index_bytes: int | None = None
    """Length of the index; None while it grows."""
    shards: Sequence[ShardLine] = ()
    missing: Sequence[MissingLine] = ()


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Put the manifest in place of the one before, at once."""
    text = seal(
        {
            "format": FORMAT,
            "version": VERSION,
            "status": manifest.status,
            "failure": manifest.failure,
            "index_bytes": manifest.index_bytes,
            "shards": [shard.fields() for shard in manifest.shards],
            "missing": [missing.fields() for missing in manifest.missing],
        },
        indent=1,
    )
    with new_file(directory / MANIFEST) as write:
        write(text)


def read_manifest(directory: Path) -> Manifest:
    """The manifest of a directory; a typed error where there is none that this release reads."""
    path = directory / MANIFEST
    if not directory.exists():
        raise PathNotFoundError(f"there is no {directory}; give the directory that was written")
    try:
        octets = read_file(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileFormatError(
            f"{directory} has no {MANIFEST}: it holds no values, or the run that made it was killed before "
            "it began; give the directory that the values were written to"
        ) from error
    except OSError as error:
        raise DamagedFileError(f"{path} cannot be read: {error.strerror}; copy it again") from error
    try:
        _check_format(Fields(parse(octets)), path)  # before the checksum, which a later version may not have
        return _manifest_of(Fields(unseal(octets)))
    except ValueError as error:
        raise DamagedFileError(f"{path} is damaged: {error}; copy it again") from error


def _check_format(fields: Fields, path: Path) -> None:
    kind, version = (fields.any(name) if name in fields else None for name in ("format", "version"))
    if kind != FORMAT or type(version) is not int or version != VERSION:
        raise FileFormatError(
            f"{path} says format {kind!r}, version {version!r}; this release reads {FORMAT!r}, version "
            f"{VERSION}: read it with the release that wrote it"
        )


def _manifest_of(fields: Fields) -> Manifest:
    status = fields.text("status")
    if status != "complete" and status != "unfinished":
        raise ValueError(f"its status is {status[:40]!r}")
    missing = [Fields(item) for item in fields.items("missing")]
    return Manifest(
        status=status,
        failure=None if fields.any("failure") is None else fields.text("failure"),
        index_bytes=None if fields.any("index_bytes") is None else fields.count("index_bytes"),
        shards=[shard_line_of(Fields(item)) for item in fields.items("shards")],
        missing=[MissingLine(item.text("missing"), item.about(), item.text("reason")) for item in missing],
    )
