"""What a directory of values holds, from its manifest and its index alone."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from torchlens._files.index import read_index
from torchlens._files.layout import (
    INDEX,
    About,
    FailureLine,
    Line,
    MissingLine,
    ShardLine,
    Status,
    ValueLine,
)
from torchlens._files.manifest import Manifest, read_manifest
from torchlens.errors import DamagedFileError

_KILLED = (
    "it was not on the disk when its run ended, or stopped being written to disk: the process was killed, "
    "ended without closing the files, or is still running"
)


@dataclass(frozen=True, slots=True)
class Found:
    """The readable values with the shard of each (None without bytes), and why the others are missing."""

    status: Status
    failure: str | None
    shards: list[ShardLine]
    values: Mapping[str, tuple[ValueLine, int | None]]
    missing: Mapping[str, MissingLine]


def find_contents(directory: Path) -> Found:
    """Read manifest and index; no shard is opened."""
    manifest = read_manifest(directory)
    path = directory / INDEX
    try:
        lines = list(read_index(path, manifest.index_bytes))
    except OSError as error:
        raise DamagedFileError(f"{path} cannot be read: {error.strerror}; copy it again") from error
    failures = [line.reason for line in lines if isinstance(line, FailureLine)]
    failure = manifest.failure or next(iter(failures), None)
    shards = _finished_shards(directory, manifest, lines)
    values, missing = _sort_values(path, lines, shards, failure or _KILLED)
    for line in manifest.missing:
        if line.key not in values:
            about = missing[line.key].about if line.key in missing else line.about
            missing[line.key] = MissingLine(line.key, about, line.reason)
    if manifest.status == "complete" and (lost := missing.keys() - {line.key for line in manifest.missing}):
        raise DamagedFileError(f"{path} has values that no shard holds: {min(lost)!r}; copy all again")
    return Found(manifest.status, failure, shards, values, missing)


def _finished_shards(directory: Path, manifest: Manifest, lines: list[Line]) -> list[ShardLine]:
    """Those of the index that the manifest names or, where it was never completed, that have their name."""
    named = set(manifest.shards)
    listed = [line for line in lines if isinstance(line, ShardLine)]
    if named - set(listed) or (manifest.status == "complete" and len(named) < len(listed)):
        raise DamagedFileError(f"the manifest and the index of {directory} differ; copy both again")
    finished = [line for line in listed if line in named or (directory / line.name).exists()]
    finished.sort(key=lambda line: line.first)
    names = {line.name for line in finished}
    overlap = any(one.first + one.count > other.first for one, other in pairwise(finished))
    if overlap or len(names) < len(finished):
        raise DamagedFileError(f"two shards in the index of {directory} hold the same blob; copy it again")
    return finished


def _sort_values(
    path: Path, lines: list[Line], shards: list[ShardLine], reason: str
) -> tuple[dict[str, tuple[ValueLine, int | None]], dict[str, MissingLine]]:
    """The values of the index that are on the disk, and those that are not."""
    firsts = [shard.first for shard in shards]
    values: dict[str, tuple[ValueLine, int | None]] = {}
    missing: dict[str, MissingLine] = {}
    for line in lines:
        if isinstance(line, FailureLine | ShardLine):
            continue
        if line.key in values or line.key in missing:
            raise DamagedFileError(f"{path} has the value {line.key!r} twice; copy it again")
        if isinstance(line, MissingLine):
            missing[line.key] = line
            continue
        at = None if line.blob is None else bisect_right(firsts, line.blob) - 1
        if at is None:
            values[line.key] = line, None
        elif at >= 0 and line.blob is not None and line.blob < firsts[at] + shards[at].count:
            values[line.key] = line, at
        else:
            missing[line.key] = MissingLine(line.key, line.about, reason)
    return values, missing


def about_of(found: Found, key: str) -> About:
    """What was noted beside a value, also a missing one; a KeyError if there is none of that key."""
    return found.values[key][0].about if key in found.values else found.missing[key].about
