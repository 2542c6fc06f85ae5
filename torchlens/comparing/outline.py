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
        self._sites: dict[tuple[int, int], Site] = {}
        self._shapes: dict[int, tuple[int, ...] | None] = {}

    def __len__(self) -> int:
        return len(self._rows)

    @cached_property
    def items(self) -> list[list[Item]]:
        """For each module call what ran in it, in capture order; 0 is the space outside all calls."""
        found: list[list[Item]] = [[] for _ in self._calls]
        begun = 1
        for row, call in enumerate(self._rows.call):
            while begun < len(self._calls) and self._calls[begun].start <= row:
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

    def site(self, row: int) -> Site:
        """Where a row's call was written; inputs, outputs and the like have their name and no frames."""
        reader = self._reader
        first = reader.numbers.first[row]
        layer = reader.layering.layer_of[first] if first < len(reader.numbers.rows) else -1
        place = self._rows.site[row]
        if self._rows.kind[row] not in ("call", "boundary") or layer < 0:
            return Site((), f"{self._rows.kind[row]} {reader.name(row)}")
        found = self._sites.get((place, layer))
        if found is None:
            spots = tuple(
                Spot(
                    frame.file.replace("\\", "/").rpartition("/")[2],
                    frame.function,
                    *(-1 if at is None else at for at in (frame.line, frame.column, frame.end_column)),
                )
                for frame in reader.frames(row)
            )
            found = self._sites[place, layer] = Site(spots, reader.layering.layers[layer].func_name)
        return found

    @cached_property
    def sites(self) -> list[Site]:
        """`site` of every row."""
        return [self.site(row) for row in range(len(self))]

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
            if item >= 0:
                found.append(item)
            else:
                entry = self._calls[~item]
                found += range(entry.start, len(self) if entry.end is None else entry.end)
        return found


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
