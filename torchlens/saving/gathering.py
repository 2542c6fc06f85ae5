"""A record as tables: what every row, op, layer, call and write has, column by column."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import numpy as np
import torch

from torchlens._files.sealed import Json
from torchlens._trace.reader import TraceReader
from torchlens._values.ghost import Recorded
from torchlens._values.ledger import Write
from torchlens.saving.arguments import encode
from torchlens.saving.functions import FunctionName, Unresolved, name_of
from torchlens.saving.tensors import Tensors

ColumnValues: TypeAlias = Mapping[str, Sequence[Any]]


@dataclass(slots=True)
class Functions:
    """The functions of a record, each once; a row that is no call has a word in the place of one."""

    listed: list[Json] = field(default_factory=list[Json])
    _numbers: dict[object, int] = field(default_factory=dict[object, int])
    _by_id: dict[int, tuple[object, int]] = field(default_factory=dict[int, tuple[object, int]])
    """Id of a function to it, so that the id stays its own, and its number."""

    def number(self, func: object) -> int:
        """The number of a row's function."""
        found = self._by_id.get(id(func))
        if found is None:
            found = self._by_id[id(func)] = func, self._numbered(func)
        return found[1]

    def _numbered(self, func: object) -> int:
        name = func if isinstance(func, str) else name_of(func)
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self.listed)
            self.listed.append(_spelled(name))
        return number


def _spelled(name: str | FunctionName | Unresolved) -> Json:
    if isinstance(name, str):
        return {"word": name}
    if isinstance(name, Unresolved):
        return {"unlisted": [name.namespace, name.__name__]}
    return {"listed": list(name)}


def gather(reader: TraceReader, tensors: Tensors, functions: Functions) -> dict[str, ColumnValues]:
    """The tables of a record, all but those of its tensors and storages, which it numbers."""
    text = _Texts(tensors.number)
    sites = list(dict.fromkeys(reader.rows.site))
    return {
        "rows": _rows(reader, text, functions, sites),
        "ops": _ops(reader),
        "layers": _attributes(reader.layering.layers, "label type func_name module"),
        "module_calls": _module_calls(reader, text),
        "writes": _writes(reader, tensors, text),
        **_sites(reader, sites),
    }


class _Texts:
    """Recorded values as JSON texts."""

    def __init__(self, number: Callable[[Recorded], int]) -> None:
        self._number = number
        self._encoder = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False)

    def __call__(self, value: Any) -> str:
        return self._encoder.encode(encode(value, self._number))

    def maybe(self, value: Any) -> str | None:
        """None where there is none."""
        return None if value is None else self(value)


def _attributes(items: Iterable[object], names: str) -> ColumnValues:
    held = list(items)
    return {name: [getattr(item, name) for item in held] for name in names.split()}


def _rows(reader: TraceReader, text: _Texts, functions: Functions, sites: Sequence[int]) -> ColumnValues:
    rows = reader.rows
    every = range(len(rows))
    outs: list[tuple[Recorded, ...]] = [_several(out) for out in rows.out]
    costs = [reader.cost(row) for row in every]
    params = reader.lineage.params
    place = {site: at for at, site in enumerate(sites)}
    number = text._number
    return {
        "kind": rows.kind,
        "function": [functions.number(func) for func in rows.func],
        "site": [place[site] for site in rows.site],
        "call": rows.call,
        "context": rows.context,
        "args": [text(args) for args in rows.args],
        "kwargs": [text.maybe(kwargs) for kwargs in rows.kwargs],
        "outs": [[number(held) for held in out] for out in outs],
        "is_tuple": [type(out) is tuple for out in rows.out],
        "versions": [[-1 if count is None else count for count in _several(each)] for each in rows.version],
        "duration": rows.duration,
        "side": rows.side,
        "name": [reader.name(row) for row in every],
        "known": [reader.is_spelling_known(row) for row in every],
        "reshaped": [row in reader.ledger.reshaped for row in every],
        "positions": [[at for at, _ in used] for used in params],
        "params": [[param for _, param in used] for used in params],
        "flops": [None if cost.flops is None else str(cost.flops) for cost in costs],
        "macs": [None if cost.macs is None else str(cost.macs) for cost in costs],
        "flops_reason": [cost.reason for cost in costs],
    }


def _ops(reader: TraceReader) -> ColumnValues:
    places = list(zip(reader.numbers.rows, reader.numbers.slots))
    parents = reader.lineage.parents
    values = reader.values
    return {
        "layer": reader.layering.layer_of,
        "requires_grad": [values.requires_grad(reader.tensor(row, slot), row) for row, slot in places],
        "inplace": [values.wrote(row, slot) for row, slot in places],
        "positions": [[at for at, _ in edges] for edges in parents],
        "parents": [[op for _, op in edges] for edges in parents],
    }


def _sites(reader: TraceReader, sites: Sequence[int]) -> dict[str, ColumnValues]:
    """Each place in the code that a row was called from, and each frame of those once."""
    row_of: dict[int, int] = {}
    for row, site in enumerate(reader.rows.site):
        row_of.setdefault(site, row)
    chains = [reader.frames(row_of[site]) for site in sites]
    numbers = {frame: at for at, frame in enumerate(dict.fromkeys(f for chain in chains for f in chain))}
    return {
        "sites": {
            "frames": [[numbers[frame] for frame in chain] for chain in chains],
            "composites": [reader.composites(row_of[site]) for site in sites],
        },
        "frames": _attributes(numbers, "file function line end_line column end_column"),
    }


def _module_calls(reader: TraceReader, text: _Texts) -> ColumnValues:
    calls = reader.record.module_calls
    return {
        **_attributes(calls, "module parent number start end"),
        "args": [text(call.args) for call in calls],
        "kwargs": [text(dict(call.kwargs)) for call in calls],
        "output": [text(call.output) for call in calls],
    }


def _writes(reader: TraceReader, tensors: Tensors, text: _Texts) -> ColumnValues:
    found = [
        (tensors.storage(key), write) for key, writes in reader.ledger.writes.items() for write in writes
    ]

    def each(of: Callable[[Write], Any]) -> list[Any]:
        return [of(write) for _, write in found]

    return {
        "storage": [storage for storage, _ in found],
        "row": each(lambda write: write.row),
        "slot": each(lambda write: write.slot),
        "tensor": each(lambda write: tensors.number(write.tensor)),
        "region": each(lambda write: tensors.number(write.region)),
        "index": each(lambda write: text.maybe(_without_arrays(write.index))),
        "saved": each(lambda write: None if write.saved is None else tensors.number(write.saved)),
        "lost": each(lambda write: write.lost),
        "bumps": each(lambda write: write.bumps),
    }


def _several(value: Any) -> tuple[Any, ...]:
    """A row's outputs, or what belongs to them, as a tuple."""
    return cast("tuple[Any, ...]", value) if type(value) is tuple else (value,)


def raised_of(reader: TraceReader, tensors: Tensors) -> list[Json]:
    """By how much changes of shapes in place raised the version counters on their storages."""
    return [
        {"storage": tensors.storage(key), "row": change.row, "bumps": change.bumps}
        for key, changes in reader.ledger.metadata_on.items()
        for change in changes
    ]


def metadata_of(reader: TraceReader, tensors: Tensors) -> list[Json]:
    """What tensors looked like before their shapes or storages were changed in place."""
    return [
        {"tensor": tensor, "row": change.row, "alias": tensors.number(change.alias)}
        for identity, changes in reader.ledger.metadata.items()
        if (tensor := tensors.known(identity)) is not None
        for change in changes
    ]


def _without_arrays(index: Any) -> Any:
    """An index with its numpy arrays as tensors, which pick the same elements."""
    if isinstance(index, tuple):
        return tuple(map(_without_arrays, cast("tuple[Any, ...]", index)))
    if isinstance(index, np.ndarray):
        return torch.from_numpy(index)
    return cast("Any", index).item() if isinstance(index, np.generic) else index
