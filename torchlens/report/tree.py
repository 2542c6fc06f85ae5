"""What ran, as a tree: module calls within module calls, with the layers that ran directly in each.

Calls of one module from one place of the tree are one entry, and so are the passes of one layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torchlens._trace.reader import TraceReader
from torchlens._values.ghost import Recorded
from torchlens._values.plain import recorded_in
from torchlens.report.amounts import ShapeRange
from torchlens.report.sizes import numel, shape_of

if TYPE_CHECKING:
    pass


@dataclass(slots=True)
class Amounts:
    """What something cost, all its calls together."""

    flops: int = 0
    uncounted: int = 0
    """Calls whose FLOPs are not known."""
    nanoseconds: int = 0
    params: int = 0
    """Elements of the parameters that no earlier entry of the tree has."""

    def add(self, other: Amounts) -> None:
        """Count another entry in."""
        self.flops += other.flops
        self.uncounted += other.uncounted
        self.nanoseconds += other.nanoseconds
        self.params += other.params


@dataclass(slots=True, eq=False)
class Entry:
    """A module or a layer at one place of the tree."""

    name: str
    """A module's address below its caller's; a layer's label."""
    type: str
    is_module: bool
    index: int
    runs: int = 0
    """A module's calls, a layer's passes, at this place."""
    all_runs: int = 0
    """Those at any place."""
    shape: ShapeRange = field(default_factory=ShapeRange)
    """Of the first output tensor."""
    more_outputs: list[str] = field(default_factory=list[str])
    """Labels of a layer's further outputs; of a module's, one empty text each."""
    amounts: Amounts = field(default_factory=Amounts)
    all_params: int = 0
    """Elements of all parameters it holds or uses, also of those that an earlier entry has."""
    items: list[Entry] = field(default_factory=list["Entry"])
    """What ran directly in it, in the order of the first run."""
    mark: str = ""
    """What is special about it, in a few words."""
    repeats: str = ""
    """For a module that stands in the tree before, under another caller: the names that lead there."""
    alike: int = 0
    """Entries with the same number differ in names, values, weights and time only."""
    kin: int = 0
    """Entries with the same number may differ in sizes, too."""

    @property
    def is_free(self) -> bool:
        """Whether it is known to compute nothing: a view, a copy, a new tensor."""
        own = self.amounts
        return not self.is_module and not (own.flops or own.uncounted or self.all_params or self.mark)

    def walk(self) -> Iterator[Entry]:
        """The entry and all below it, in the tree's order."""
        yield self
        for item in self.items:
            yield from item.walk()


def build_tree(reader: TraceReader) -> Entry:
    """The tree of a trace. Its top is the space outside all module calls."""
    builder = _Builder(reader)
    builder.add_modules()
    builder.add_layers()
    builder.order_items()
    builder.sum_up()
    builder.give_params(builder.top, set())
    builder.number_alike(builder.top)
    return builder.top


class _Builder:
    def __init__(self, reader: TraceReader) -> None:
        self._reader = reader
        self._record = reader.record
        root = self._record.modules[0]
        self.top = Entry("", "total" if reader.module_calls_of[0] else root.type_name, True, 0, 1, 1)
        self._entry_of_call: list[Entry] = [self.top]
        self._parent: dict[Entry, Entry] = {}
        self._first_row: dict[Entry, tuple[int, bool]] = {}
        self._layer_params: dict[Entry, set[int]] = {}
        self._below: dict[int, frozenset[int]] = {}
        self._numbers: dict[object, int] = {}
        self._sizes = [numel(entry.tensor) or 0 for entry in self._record.params]

    def add_modules(self) -> None:
        """One entry for the calls of each module within each entry; a module that calls itself is one."""
        known: dict[tuple[Entry, int], Entry] = {}
        places: dict[int, Entry] = {}
        for call in self._record.module_calls[1:]:
            caller = self._entry_of_call[call.parent]
            entry = self._running(caller, call.module) or known.get((caller, call.module))
            if entry is None:
                entry = known[caller, call.module] = self._new_module(caller, call.module)
                self._parent[entry] = caller
                self._first_row[entry] = (call.start, False)
                caller.items.append(entry)
                if call.module in places:
                    entry.repeats = self._path(places[call.module])
                places.setdefault(call.module, entry)
            entry.runs += 1
            self._entry_of_call.append(entry)
            if call.end is not None:
                self._add_output(entry, call.output, call.end - 1)
        self._mark_unreturned()

    def _running(self, entry: Entry | None, module: int) -> Entry | None:
        """The entry around `entry` that runs a module already."""
        while entry is not None and entry is not self.top:
            if entry.index == module:
                return entry
            entry = self._parent[entry]
        return None

    def _new_module(self, caller: Entry, module: int) -> Entry:
        found = self._record.modules[module]
        inside = "" if caller is self.top else self._record.modules[caller.index].addresses[0] + "."
        addresses = found.addresses
        if inside and inside != ".":
            addresses = [a[len(inside) :] for a in addresses if a.startswith(inside)] or addresses
        all_calls = len(self._reader.module_calls_of[module])
        return Entry(addresses[0], found.type_name, True, module, all_runs=all_calls)

    def _path(self, entry: Entry) -> str:
        names: list[str] = []
        while entry is not self.top:
            names.append(entry.name)
            entry = self._parent[entry]
        return ".".join(filter(None, reversed(names)))

    def _add_output(self, entry: Entry, output: object, row: int) -> None:
        tensors = recorded_in(output)
        if tensors:
            entry.shape.add(self._shape(tensors[0], row))
            entry.more_outputs = [""] * (len(tensors) - 1)

    def _shape(self, tensor: Recorded, row: int) -> tuple[int, ...] | None:
        return shape_of(self._reader.values.geometry(tensor, row, after=True))

    def _mark_unreturned(self) -> None:
        calls = self._record.module_calls
        unreturned = {at for at, call in enumerate(calls) if at and call.end is None}
        outer = {calls[at].parent for at in unreturned}
        word = "halted here" if self._record.status == "halted" else "raised here"
        for at in unreturned - outer:
            self._entry_of_call[at].mark = word

    def add_layers(self) -> None:
        """One entry for the passes of each layer within each entry; further outputs join the first."""
        reader, rows, layering = self._reader, self._reader.rows, self._reader.layering
        known: dict[tuple[Entry, int], Entry] = {}
        for op, (row, slot) in enumerate(zip(reader.numbers.rows, reader.numbers.slots, strict=True)):
            if rows.kind[row] in ("input", "output", "buffer"):
                continue
            inside = self._entry_of_call[rows.call[row]]
            layer = layering.layers[layering.layer_of[op]]
            first = known.get((inside, layering.layer_of[op - slot]))
            if slot:
                if first is not None and layer.label not in first.more_outputs and layer.label != first.name:
                    first.more_outputs.append(layer.label)
                continue
            if first is None:
                first = Entry(layer.label, layer.type, False, layering.layer_of[op], all_runs=len(layer.ops))
                first.mark = str(rows.func[row]) if rows.kind[row] == "source" else ""
                known[inside, layering.layer_of[op]] = first
                self._layer_params[first] = set()
                self._first_row[first] = (row, True)
                inside.items.append(first)
            self._add_pass(first, row)

    def _add_pass(self, entry: Entry, row: int) -> None:
        entry.runs += 1
        entry.shape.add(self._shape(self._reader.tensor(row, 0), row))
        cost = self._reader.cost(row)
        own = entry.amounts
        own.flops += cost.flops or 0
        own.uncounted += cost.flops is None
        own.nanoseconds += self._reader.rows.duration[row]
        self._layer_params[entry].update(param for _, param in self._reader.lineage.params[row])

    def order_items(self) -> None:
        """Put what ran in each entry into the order of its first run."""
        for entry in {self.top, *self._parent}:
            entry.items.sort(key=self._first_row.__getitem__)

    def sum_up(self) -> None:
        """Add up what modules cost, the inner ones first."""
        for entry in reversed([self.top, *self._parent]):
            for item in entry.items:
                entry.amounts.add(item.amounts)

    def give_params(self, entry: Entry, given: set[int]) -> set[int]:
        """Count each parameter at the first entry that holds or uses it; those of the entry are returned."""
        held = set(self._params_below(entry.index)) if entry.is_module else self._layer_params[entry]
        if entry is self.top:
            held = set(range(len(self._sizes)))
        for item in entry.items:
            held |= self.give_params(item, given)
            entry.amounts.params += item.amounts.params
        entry.amounts.params += sum(self._sizes[param] for param in held - given)
        entry.all_params = sum(self._sizes[param] for param in held)
        given |= held
        return held

    def _params_below(self, module: int) -> frozenset[int]:
        found = self._below.get(module)
        if found is None:
            self._below[module] = frozenset()  # a module that holds itself
            entry = self._record.modules[module]
            found = frozenset(entry.params).union(*map(self._params_below, entry.children))
            self._below[module] = found
        return found

    def number_alike(self, entry: Entry) -> None:
        """Give the same numbers to entries that are built alike."""
        for item in entry.items:
            self.number_alike(item)
        names = tuple(item.name if item.is_module else "" for item in entry.items)
        build = (
            entry.type,
            entry.is_module,
            entry.mark,
            entry.repeats,
            entry.runs,
            len(entry.more_outputs),
            names,
        )
        own = entry.amounts
        sizes = (str(entry.shape), entry.all_params, own.flops, own.uncounted)
        entry.alike = self._number((build, sizes, tuple(item.alike for item in entry.items)))
        entry.kin = self._number((build, tuple(item.kin for item in entry.items)))

    def _number(self, key: object) -> int:
        return self._numbers.setdefault(key, len(self._numbers))
