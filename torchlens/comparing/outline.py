"""One run as a tree: what ran in each module call, told by names, files and lines only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final, NamedTuple, TypeAlias

from torchlens._keys.names import operation_of
from torchlens._trace.views import Views
from torchlens.report.sizes import shape_of

Item: TypeAlias = int
"""A part of a module call: a row by its number, or a call made in it by the complement of its number."""


class Spot(NamedTuple):
    """One frame of a call site; what is not known, as a column before Python 3.11, is -1."""

    file: str
    """Without its folders."""
    function: str
    line: int
    column: int
    end_column: int


class Site(NamedTuple):
    """Where a call was written, outermost frame first, and the name that it has there."""

    spots: tuple[Spot, ...]
    func_name: str


class Outline:
    """The rows and module calls of a run, with the keys by which two runs are aligned."""

    def __init__(self, views: Views) -> None:
        self._views = views
        self._reader = reader = views.reader
        self._rows = reader.rows
        self._calls = reader.record.module_calls
        self._shapes: dict[int, tuple[int, ...] | None] = {}

    def __len__(self) -> int:
        return len(self._rows)

    @cached_property
    def items(self) -> list[list[Item]]:
        """For each module call what ran in it, in capture order; 0 is the space outside all calls."""
        found: list[list[Item]] = [[] for _ in self._calls]
        begun = 1
        for row, call in enumerate(self._rows.call):
            while begun < len(self._calls) and self._spans[begun].start <= row:
                found[self._calls[begun].parent].append(~begun)
                begun += 1
            found[call].append(row)
        for at in range(begun, len(self._calls)):
            found[self._calls[at].parent].append(~at)
        return found

    @cached_property
    def operations(self) -> list[str]:
        """For each row torch's name of what it computes; of a buffer or source its kind and last name."""
        reader, found = self._reader, list[str]()
        for row, kind in enumerate(self._rows.kind):
            name = reader.name(row)
            if kind in ("call", "boundary"):
                found.append(operation_of(name))
            else:
                found.append(kind if name == kind else f"{kind} {name.rpartition('.')[2]}")
        return found

    @cached_property
    def sites(self) -> list[Site]:
        """Where each row's call was written; inputs, outputs and the like have their name and no frames."""
        rows, layer_of = self._rows, self._reader.layering.layer_of
        known: dict[tuple[int, int], Site] = {}
        found: list[Site] = []
        for row, kind in enumerate(rows.kind):
            ops = self._reader.ops_of_row(row)
            if kind not in ("call", "boundary") or not ops:
                found.append(Site((), f"{kind} {self._reader.name(row)}"))
                continue
            key = rows.site[row], layer_of[ops[0]]
            if key not in known:
                known[key] = Site(self._spots(row), self._reader.layering.layers[key[1]].func_name)
            found.append(known[key])
        return found

    def _spots(self, row: int) -> tuple[Spot, ...]:
        return tuple(
            Spot(
                frame.file.replace("\\", "/").rpartition("/")[2],
                frame.function,
                *(-1 if at is None else at for at in (frame.line, frame.column, frame.end_column)),
            )
            for frame in self._reader.frames(row)
        )

    def shape(self, row: int) -> tuple[int, ...] | None:
        """Of the first tensor that a row gave; None without one, and for a nested tensor."""
        if row not in self._shapes:
            ops = self._reader.ops_of_row(row)
            self._shapes[row] = shape_of(self._views.op(ops[0])._seen) if ops else None
        return self._shapes[row]

    def names(self, call: int) -> tuple[str, str]:
        """A called module's name within the module that called it, and the name of its class."""
        return self._names[call]

    @cached_property
    def _names(self) -> list[tuple[str, str]]:
        modules = self._reader.record.modules
        found: list[tuple[str, str]] = []
        for call in self._calls:
            entry, caller = modules[call.module], modules[self._calls[call.parent].module]
            address, prefix = entry.addresses[0], f"{caller.addresses[0]}."
            inner = address[len(prefix) :] if address.startswith(prefix) else address
            found.append((inner, entry.type_name))
        return found

    def telling_name(self, call: int) -> str | None:
        """A called module's name where it is one: the numbers of a sequence shift with what is put in."""
        name = self._names[call][0]
        return None if name.rpartition(".")[2].isdigit() else name

    def rows_in(self, items: Sequence[Item]) -> list[int]:
        """The rows among some items, and all that ran in the calls among them, in capture order."""
        found: list[int] = []
        for item in items:
            found += self.span(item)
        return found

    def size(self, items: Sequence[Item]) -> int:
        """How many rows that are."""
        return sum(map(len, map(self.span, items)))

    def span(self, item: Item) -> range:
        """The rows of an item: what ran in a call and in those within it stands together."""
        return range(item, item + 1) if item >= 0 else self._spans[~item]

    @cached_property
    def _spans(self) -> list[range]:
        """For each call its rows, by what ran in it.

        The record's own bounds are others: hooks before a call are within them and run in its caller, and a
        call that raised has no end.
        """
        starts, ends = [len(self)] * len(self._calls), [0] * len(self._calls)
        for row, call in enumerate(self._rows.call):
            starts[call], ends[call] = min(starts[call], row), row + 1
        for at in range(len(starts) - 1, 0, -1):
            parent = self._calls[at].parent
            starts[parent], ends[parent] = min(starts[parent], starts[at]), max(ends[parent], ends[at])
        bounds = zip(self._calls, starts, ends)
        return [range(start, end) if end else range(call.start, call.start) for call, start, end in bounds]


def comes_first(one: Outline, other: Outline) -> bool:
    """An order of runs by what is spelled of them; True as well where nothing tells them apart."""
    if len(one) != len(other):
        return len(one) < len(other)
    for feature in _FEATURES:
        ours, theirs = feature(one), feature(other)
        if ours != theirs:
            return repr(ours) < repr(theirs)
    return True


_FEATURES: Final[tuple[Callable[[Outline], object], ...]] = (
    lambda outline: outline.operations,
    lambda outline: outline.items,
    lambda outline: [outline.names(call) for call in range(len(outline.items))],
    lambda outline: outline.sites,
)
