"""Pictures in files, whole or not at all."""

from __future__ import annotations

from pathlib import Path

from torchlens._files.durable import new_file
from torchlens.errors import UnwritablePathError


def write_file(path: Path, content: bytes) -> None:
    """Write a file; one that is there is replaced, folders are made. `UnwritablePathError` if it can't be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_file(path) as write:
            write(content)
    except OSError as error:
        raise UnwritablePathError(f"{path} cannot be written: {error.strerror or error}") from error
