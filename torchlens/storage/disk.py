"""What a caller may choose about values that go to disk."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from torchlens._files.layout import QUEUE_BYTES, SHARD_BYTES
from torchlens.errors import OptionError, PathTakenError


@dataclass(frozen=True, slots=True)
class ToDisk:
    """Values are written to a new directory, while the model runs. `to_disk` makes one."""

    path: Path
    """Absolute: a later `chdir` does not move it."""
    shard_bytes: int = SHARD_BYTES
    queue_bytes: int = QUEUE_BYTES

    def __post_init__(self) -> None:
        for name, size in (("shard_bytes", self.shard_bytes), ("queue_bytes", self.queue_bytes)):
            if type(size) is not int or size <= 0:
                raise OptionError(f"{name}={size!r} is no size; give a positive number of bytes")
        if os.path.lexists(self.path):
            raise PathTakenError(
                f"{self.path} exists already; nothing is overwritten: give a path that does not exist"
            )


def to_disk(
    path: str | os.PathLike[str], *, shard_bytes: int = SHARD_BYTES, queue_bytes: int = QUEUE_BYTES
) -> ToDisk:
    """Let a capture write the values it keeps to a new directory, while the model runs.

    `shard_bytes` is the size of the files, and what a killed run may lose besides what waits;
    `queue_bytes` is how much may wait in memory before the model does. `OptionError` for an impossible
    value, `PathTakenError` if anything is at the path, now or when the capture begins.

    >>> to_disk("values-of-a-run").shard_bytes
    67108864
    """
    return ToDisk(path_of(path), shard_bytes, queue_bytes)


def path_of(path: object) -> Path:
    """The absolute path that a caller means, `~` for home; `OptionError` if torch can map no such path."""
    if not isinstance(path, str | os.PathLike):
        raise OptionError(f"path={path!r} is no path; give a string or a pathlib.Path")
    text: object = os.fspath(path)  # pyright: ignore[reportUnknownVariableType] - bytes?
    if not isinstance(text, str) or not text or "\0" in text:
        raise OptionError(f"path={path!r} names nothing; give a string or a pathlib.Path")
    try:
        text.encode()
    except UnicodeEncodeError:  # torch maps files by UTF-8 names
        raise OptionError(f"path={path!r} is no Unicode text; give a path that is") from None
    return Path(os.path.abspath(os.path.expanduser(text)))
