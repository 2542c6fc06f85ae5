"""Writing a trace: its record as tables, the storages of its tensors as bytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch

from torchlens import _arrow
from torchlens._files.durable import Octets
from torchlens._files.sealed import Json, seal
from torchlens._trace.reader import TraceReader
from torchlens._unseen import unseen
from torchlens._version import __version__
from torchlens.saving.archive import Put, new_archive, refuse_taken
from torchlens.saving.blobs import write_blobs
from torchlens.saving.facts import facts_of
from torchlens.saving.gathering import Functions, gather, metadata_of, raised_of
from torchlens.saving.layout import FORMAT, MANIFEST, RECORD, TABLES, VERSION, table_name
from torchlens.saving.tensors import Tensors, columns_of


def write_trace(reader: TraceReader, path: Path, *, params: bool) -> None:
    """Write a trace to a new file or directory; nothing is left of it if that fails."""
    refuse_taken(path)
    with unseen():
        _write(reader, path, params=params)


def _write(reader: TraceReader, path: Path, *, params: bool) -> None:
    tensors, functions = Tensors(reader, params=params), Functions()
    found = gather(reader, tensors, functions)
    record = {**facts_of(reader.record, tensors.number), "functions": functions.listed}
    record["copied_bytes"] = reader.values.copied_bytes
    record["metadata"], record["raised"] = metadata_of(reader, tensors), raised_of(reader, tensors)
    found["tensors"], blobs = tensors.columns(), tensors.blobs()
    with new_archive(path) as put:
        parts = _Parts(put)
        write_blobs(blobs, parts.put_values)
        found["storages"] = columns_of(blobs)
        for table, columns in TABLES.items():
            octets = _arrow.to_octets(_arrow.build(columns, found[table], {}))
            parts.put_hashed(table_name(table), octets, rows=len(found[table][columns[0].name]))
        parts.put_hashed(RECORD, json.dumps(record, separators=(",", ":"), allow_nan=False).encode())
        versions = {"torchlens": __version__, "torch": torch.__version__}
        manifest = {"format": FORMAT, "version": VERSION, "written_by": versions, "parts": parts.noted}
        put(MANIFEST, [seal(manifest, indent=1)])


class _Parts:
    """Writes parts and notes for the manifest what they are."""

    def __init__(self, put: Put) -> None:
        self.noted: dict[str, Json] = {}
        self._put = put

    def put_values(self, name: str, content: Iterable[Octets]) -> None:
        """A file of storages, each of which has a hash in the table of storages."""
        size = 0

        def counted() -> Iterator[Octets]:
            nonlocal size
            for octets in content:
                size += len(octets)
                yield octets

        self._put(name, counted())
        self.noted[name] = {"bytes": size}

    def put_hashed(self, name: str, octets: bytes, **counts: int) -> None:
        """A part that is read whole."""
        self._put(name, [octets])
        self.noted[name] = {"bytes": len(octets), "sha256": hashlib.sha256(octets).hexdigest(), **counts}
