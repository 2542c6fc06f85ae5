"""Saved traces as somebody else might have made them: cut off, flipped, rewritten with hashes that fit."""

from __future__ import annotations

import copy
import hashlib
import json
import random
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from torchlens._files.sealed import seal
from torchlens.saving.layout import MANIFEST, TABLES, table_name

Parts = dict[str, bytes]
Mutation = Callable[[Parts, random.Random], None]


def parts_of(path: Path) -> Parts:
    return {file.name: file.read_bytes() for file in path.iterdir()}


def write_directory(parts: Parts, path: Path) -> None:
    path.mkdir(parents=True)
    for name, octets in parts.items():
        (path / name).write_bytes(octets)


def write_zip(parts: Parts, path: Path) -> None:
    """A zip in which parts begin anywhere, so that storages may be misaligned."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, octets in parts.items():
            archive.writestr(name, octets)


def sealed(parts: Parts) -> None:
    """Make sizes, hashes and checksums fit what the parts are now."""
    text = re.sub(rb',\s*"crc32": "[0-9a-f]{8}"\s*\}\s*\Z', b"}", parts[MANIFEST])
    manifest = json.loads(text)
    for name, part in manifest["parts"].items():
        if name in parts:
            part["bytes"] = len(parts[name])
            if "sha256" in part:
                part["sha256"] = hashlib.sha256(parts[name]).hexdigest()
    parts[MANIFEST] = seal(manifest, indent=1)


def flip_bytes(parts: Parts, source: random.Random) -> None:
    name = source.choice(sorted(parts))
    octets = bytearray(parts[name])
    for _ in range(source.choice([1, 1, 1, 4, 30])):
        if octets:
            octets[source.randrange(len(octets))] = source.choice([0, 255, source.randrange(256)])
    parts[name] = bytes(octets)


def cut_off(parts: Parts, source: random.Random) -> None:
    name = source.choice(sorted(parts))
    parts[name] = parts[name][: source.randrange(len(parts[name]) + 1)]


def grow(parts: Parts, source: random.Random) -> None:
    name = source.choice(sorted(parts))
    parts[name] += source.randbytes(source.choice([1, 100, 5000]))


def swap(parts: Parts, source: random.Random) -> None:
    one, other = source.sample(sorted(parts), 2)
    parts[one], parts[other] = parts[other], parts[one]


def drop(parts: Parts, source: random.Random) -> None:
    del parts[source.choice(sorted(parts))]


def rewrite_cells(parts: Parts, source: random.Random) -> None:
    """Other values in a table, which stays a table, and a manifest that fits it."""
    table = source.choice(sorted(TABLES))
    found = pa.ipc.open_stream(pa.BufferReader(parts[table_name(table)])).read_all()
    found.validate(full=True)  # what an earlier mutation left could crash the reader here
    columns = {name: found[name].to_pylist() for name in found.column_names}
    for _ in range(source.choice([1, 1, 3])):
        name = source.choice(sorted(columns))
        if columns[name]:
            at = source.randrange(len(columns[name]))
            columns[name][at] = _other(columns[name][at], source, columns[name])
    try:
        arrays = [pa.array(columns[field.name], field.type) for field in found.schema]
        made = pa.Table.from_arrays(arrays, schema=found.schema)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, made.schema) as writer:
        writer.write_table(made)
    parts[table_name(table)] = sink.getvalue().to_pybytes()
    sealed(parts)


def rewrite_record(parts: Parts, source: random.Random) -> None:
    """Something else in the JSON of the record, and a manifest that fits it."""
    name = source.choice(["record.json", "record.json", MANIFEST])
    found = json.loads(re.sub(rb',\s*"crc32": "[0-9a-f]{8}"\s*\}\s*\Z', b"}", parts[name]))
    for _ in range(source.choice([1, 1, 3])):
        _change(found, source)
    parts[name] = json.dumps(found).encode()
    if name == MANIFEST:
        parts[name] = seal(found, indent=1)
    else:
        sealed(parts)


def flip_inside(parts: Parts, source: random.Random) -> None:
    """Flipped bytes of a table or the record, and a manifest that fits them."""
    flip_bytes(parts, source)
    try:
        sealed(parts)
    except (ValueError, KeyError, AttributeError, TypeError):
        return


def _change(found: Any, source: random.Random) -> None:
    """Replace one thing somewhere in a JSON value."""
    places = list(_places(found))
    if places:
        holder, key = source.choice(places)
        holder[key] = _other(holder[key], source, [holder[k] for holder, k in places])


def _places(found: Any) -> Any:
    keys = range(len(found)) if isinstance(found, list) else list(found) if isinstance(found, dict) else ()
    for key in keys:
        yield found, key
        yield from _places(found[key])


_TEXTS = (
    '{"t":0}', '{"t":-1}', '{"t":99999}', '{"list":[{"t":1}]}', "[]", "[[[[[[]]]]]]", '{"dtype":"nothing"}',
    '{"opaque":["a","b"]}', '{"named":["__class__",["mro"],[1]]}',
    '{"dataclass":["os","dict",[["system",1]],[]]}', '{"size":[-1,9223372036854775807]}',
    '{"device":"cuda:99"}', "../../../../etc/passwd", "/etc/passwd", "\0", "", "torch.load",
    "<script>", "float32", "cpu", "quint8", "sparse_coo", '{"scale":"nan","zero_point":5}',
    '{"nested":[0,1,2]}',
    '{"sparse":[0,1],"is_coalesced":true}', '{"compressed":[0,1,2]}', "[" * 500,
)  # fmt: skip
_NUMBERS = (0, 1, 2, 3, -1, 7, 63, 64, 65, 2**31, 2**62, 2**63 - 1, -(2**63), 10**12)


def _other(value: Any, source: random.Random, like: list[Any]) -> Any:
    if source.random() < 0.3:
        return copy.deepcopy(source.choice(like))
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return source.choice([*_NUMBERS, value + 1, value - 1])
    if isinstance(value, str):
        return source.choice([*_TEXTS, value[::-1], value * 2])
    if isinstance(value, list):
        held = list(value)
        source.shuffle(held)
        return source.choice([held, held * 2, held[:-1], [*held, 1], [*held, -1], [*held, 2**40]])
    return source.choice([None, 0, "x", [], {}, True, {"t": 0}])


MUTATIONS: tuple[Mutation, ...] = (
    flip_bytes, cut_off, grow, swap, drop, rewrite_cells, rewrite_cells, rewrite_cells, rewrite_record,
    rewrite_record, flip_inside,
)  # fmt: skip
