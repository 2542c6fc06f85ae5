"""Writing a trace: its record as tables, the storages of its tensors as bytes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from torchlens import _arrow
from torchlens._files.durable import Octets
from torchlens._files.sealed import Json, seal
from torchlens._trace.reader import TraceReader
from torchlens._version import __version__
from torchlens.errors import OptionError
from torchlens.saving.archive import Put, new_archive
from torchlens.saving.blobs import write_blobs
from torchlens.saving.facts import facts_of
from torchlens.saving.gathering import Functions, gather, metadata_of
from torchlens.saving.layout import FORMAT, MANIFEST, RECORD, TABLES, VERSION, table_name
from torchlens.saving.tensors import Tensors, columns_of


def write_trace(reader: TraceReader, path: Path, *, params: bool) -> None:
    """Write a trace to a new file or directory; nothing is left of it if that fails."""
    with new_archive(path) as put:
        _write(reader, put, params=params)


def _write(reader: TraceReader, put: Put, *, params: bool) -> None:
    tensors, functions = Tensors(reader, params=params), Functions()
    found = gather(reader, tensors, functions)
    record = {**facts_of(reader.record, tensors.number), "functions": functions.listed}
    record["copied_bytes"] = reader.values.copied_bytes
    record["metadata"] = metadata_of(reader, tensors)
    blobs = tensors.blobs()
    parts: dict[str, Json] = {}

    def put_noted(name: str, content: Iterable[Octets]) -> None:
        sizes: list[int] = []
        put(name, (octets for octets in content if sizes.append(len(octets)) is None))
        parts[name] = {"bytes": sum(sizes)}

    write_blobs(blobs, put_noted)
    last = {"tensors": tensors.columns(), "storages": columns_of(blobs)}
    for table, columns in TABLES.items():
        values: Mapping[str, Sequence[Any]] = last[table] if table in last else found[table]
        octets = _arrow.to_octets(_arrow.build(columns, values, {}))
        put(table_name(table), [octets])
        rows = len(values[columns[0].name])
        parts[table_name(table)] = {"bytes": len(octets), "sha256": _hash(octets), "rows": rows}
    text = json.dumps(record, separators=(",", ":"), allow_nan=False).encode()
    put(RECORD, [text])
    parts[RECORD] = {"bytes": len(text), "sha256": _hash(text)}
    versions = {"torchlens": __version__, "torch": torch.__version__}
    manifest = {"format": FORMAT, "version": VERSION, "written_by": versions, "parts": parts}
    put(MANIFEST, [seal(manifest, indent=1)])


def _hash(octets: bytes) -> str:
    return hashlib.sha256(octets).hexdigest()


def path_of(path: object) -> Path:
    """The absolute path that a caller means; `OptionError` if it is none."""
    if not isinstance(path, str | os.PathLike):
        raise OptionError(f"path={path!r} is no path; give a string or a pathlib.Path")
    text: object = os.fspath(path)  # pyright: ignore[reportUnknownVariableType] - bytes?
    if not isinstance(text, str) or not text or "\0" in text:
        raise OptionError(f"path={path!r} names no file; give a string or a pathlib.Path")
    return Path(os.path.abspath(text))
