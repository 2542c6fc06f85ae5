"""Whose data enters each op: edges that follow the elements, through views and in-place writes.

A tensor read by a call comes from the call that made the tensor object and from every later write into the
elements it covers; a write that covers them all hides what is older.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from torchlens._records import OpNumbers, Record
from torchlens._values.geometry import region_of, storage_key
from torchlens._values.ghost import RECORDED, Ghost, Recorded, StorageKey
from torchlens._values.ledger import Ledger, Write
from torchlens._values.region import Region, last_writers

HOST: Final = "host"
"""The argument position of what came through numpy or Python lists rather than as an argument."""


@dataclass(slots=True)
class Lineage:
    """The edges of a record."""

    parents: list[tuple[tuple[str, int], ...]]
    """For each op, (argument position, parent op) in order of use; an op may stand at several positions.

    What came through the host stands at `"host"`, behind the rest."""
    params: list[tuple[tuple[str, int], ...]]
    """For each row, (argument position, parameter)."""


class _Writers:
    """The writes into one storage, ready to be searched."""

    def __init__(self, writes: Sequence[Write]) -> None:
        self.writes = [write for write in writes if write.slot is not None]
        self.rows = [write.row for write in self.writes]
        self.regions = [region_of(write.tensor) for write in self.writes]


def trace_lineage(record: Record, numbers: OpNumbers, ledger: Ledger) -> Lineage:
    """Find the parents of every op of the record."""
    return _Tracer(record, numbers, ledger).run()


class _Tracer:
    def __init__(self, record: Record, numbers: OpNumbers, ledger: Ledger) -> None:
        self._record = record
        self._row_of = numbers.rows
        self._first = numbers.first
        self._ledger = ledger
        self._writers: Mapping[StorageKey, _Writers] = {k: _Writers(w) for k, w in ledger.writes.items()}
        self._made: dict[int, int] = {}
        """Id of a tensor to the op that last gave it."""
        self._host: dict[int, list[int]] = {}
        """By row, the ops behind its data from the host."""
        self._params = dict(record.structure.param_of_tensor)

    def run(self) -> Lineage:
        rows = self._record.rows
        result = Lineage([], [])
        aliases = list(reversed(self._record.aliases))
        made, first, params = self._made, self._first, self._params
        host, leaving = self._record.host_edges, self._leaving()
        for row, (args, kwargs, out) in enumerate(zip(rows.args, rows.kwargs, rows.out)):
            while aliases and aliases[-1][0] <= row:
                self._alias(*aliases.pop()[1:])
            for target, tensor in leaving.get(row, ()) if leaving else ():
                self._host.setdefault(target, []).extend(self._ops_behind(row, tensor, None))
            used = positions(args, kwargs)
            if id(out) in made and all(tensor is not out for _, tensor in used):
                used.append(("0", out))  # an attribute that gives a tensor again, as `grad` does
            outs = cast("tuple[Any, ...]", out) if type(out) is tuple else (out,)
            through_host = tuple([(HOST, op) for op in self._host[row]]) if row in self._host else ()
            shared: tuple[tuple[str, int], ...] | None = None
            for produced in outs:
                if self._writers:
                    shared = tuple(self._parents(row, used, produced))
                elif shared is None:  # nothing was written: whoever made a tensor object made its elements
                    shared = tuple([(at, made[id(t)]) for at, t in used if id(t) in made])
                result.parents.append(shared + through_host)
            if row in host:
                used += [(HOST, tensor) for tensor, _ in host[row]]
            held = [(at, params[id(t)]) for at, t in used if id(t) in params] if params else ()
            result.params.append(tuple(held))
            if rows.kind[row] != "output":  # a result that is used further comes from what made it
                for slot, produced in enumerate(outs):
                    made[id(produced)] = first[row] + slot
        return result

    def _leaving(self) -> dict[int, list[tuple[int, Recorded]]]:
        """By the row before which they left for the host, (row that they came back to, tensor)."""
        leaving: dict[int, list[tuple[int, Recorded]]] = {}
        for target, edges in self._record.host_edges.items():
            for tensor, before in edges:
                leaving.setdefault(before, []).append((target, tensor))
        return leaving

    def _parents(
        self, row: int, used: list[tuple[str, Recorded]], produced: Recorded
    ) -> Iterator[tuple[str, int]]:
        for position, tensor in used:
            for op in self._ops_behind(row, tensor, produced):
                yield position, op

    def _ops_behind(self, row: int, tensor: Recorded, produced: Recorded | None) -> list[int]:
        maker = self._made.get(id(tensor))
        seen = geometry_at(self._ledger, tensor, row, after=False)
        key = storage_key(seen)
        writers = self._writers.get(key)
        if writers is None:
            return [] if maker is None else [maker]
        start = 0 if maker is None else bisect_right(writers.rows, self._row_of[maker])
        end = bisect_left(writers.rows, row)
        region = self._region_read(row, seen, key, writers, produced)
        newest_first = range(end - 1, start - 1, -1)
        positions_found, covered = last_writers(region, (writers.regions[at] for at in newest_first))
        found = [writers.writes[newest_first[at]] for at in positions_found]
        ops = [self._first[write.row] + (write.slot or 0) for write in found]
        if not covered and maker is not None:
            ops.append(maker)
        return sorted(set(ops))

    def _region_read(
        self, row: int, tensor: Recorded, key: StorageKey, writers: _Writers, produced: Recorded | None
    ) -> Region:
        """The elements a call reads of an argument: those of its result, where the result is a view of it."""
        at = bisect_left(writers.rows, row)
        writes_it = at < len(writers.rows) and writers.rows[at] == row
        if produced is not None and not writes_it:
            view = geometry_at(self._ledger, produced, row, after=True)
            if storage_key(view) == key:
                return region_of(view)
        return region_of(tensor)

    def _alias(self, alias: Recorded, original: Recorded) -> None:
        maker = self._made.get(id(original))
        if maker is not None:
            self._made[id(alias)] = maker
        if id(original) in self._params:
            self._params[id(alias)] = self._params[id(original)]


def geometry_at(ledger: Ledger, tensor: Recorded, row: int, *, after: bool) -> Recorded:
    """The tensor with the shape, strides and storage it had before (or after) a row's call."""
    if isinstance(tensor, Ghost):  # there is one for each op that changed it
        return tensor
    for change in ledger.metadata.get(id(tensor), ()):
        if change.row > row or (change.row == row and not after):
            return change.alias
    return tensor


def positions(args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> list[tuple[str, Recorded]]:
    """(position, tensor) of the tensor arguments: `"0"`, `"1.2"` inside a list, a keyword by its name."""
    found: list[tuple[str, Recorded]] = []
    for at, value in enumerate(args):
        if isinstance(value, RECORDED):
            found.append((str(at), value))
        elif isinstance(value, (tuple, list, dict, slice)):
            found += _nested(str(at), value)
    if kwargs:
        for name, value in kwargs.items():
            found += _nested(name, value)
    return found


def _nested(position: str, value: Any) -> Iterator[tuple[str, Recorded]]:
    if isinstance(value, RECORDED):
        yield position, value
    elif isinstance(value, (tuple, list)):
        for at, item in enumerate(cast("list[Any]", value)):
            yield from _nested(f"{position}.{at}", item)
    elif isinstance(value, dict):
        for key, item in cast("dict[Any, Any]", value).items():
            yield from _nested(f"{position}.{key}", item)
    elif isinstance(value, slice):
        bounds = cast("slice[Any, Any, Any]", value)
        yield from _nested(f"{position}.start", bounds.start)
        yield from _nested(f"{position}.stop", bounds.stop)
        yield from _nested(f"{position}.step", bounds.step)
