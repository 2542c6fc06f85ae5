"""Entries of the tree as rows: one entry, several like ones together, or several that compute nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from torchlens.report.amounts import ShapeRange, quantity
from torchlens.report.tree import Amounts, Entry


@dataclass(slots=True)
class Row:
    """One row, and the rows below it."""

    name: str = ""
    type: str = ""
    labels: str = ""
    runs: str = ""
    note: str = ""
    alert: bool = False
    """Whether the note tells of something that went wrong."""
    shape: str = ""
    amounts: Amounts = field(default_factory=Amounts)
    all_params: int = 0
    items: list[Row] = field(default_factory=list["Row"])
    hides: bool = False
    """Whether it stands for entries that have no row."""

    def walk(self) -> Iterator[Row]:
        """The row and all below it."""
        yield self
        for item in self.items:
            yield from item.walk()


def row_of(entry: Entry) -> Row:
    """The row of one entry, without what is below it."""
    row = Row(note=entry.mark, amounts=replace(entry.amounts), all_params=entry.all_params)
    row.shape = str(entry.shape) + (f" +{len(entry.more_outputs)}" if entry.more_outputs else "")
    if entry.is_module:
        row.name, row.type, row.alert = entry.name, entry.type, bool(entry.mark)
        row.runs = f"×{entry.runs}" if entry.runs > 1 else ""
    else:
        row.labels, row.runs = _labels(entry), _passes(entry)
    return row


def row_with_layer(module: Entry, layer: Entry) -> Row:
    """The row of a module that names its only layer of weight as well."""
    row = row_of(module)
    row.labels = _labels(layer)
    passes = _passes(layer)
    if module.runs == 1 or passes == row.runs:
        row.runs = passes
    elif passes:
        row.runs = f"{row.runs} · {passes}"
    free = _count(module.items) - _count([layer])
    notes = [f"+{free} free" if free else "", row.note or layer.mark]
    row.note, row.hides = ", ".join(filter(None, notes)), free > 0
    return row


def closed_row(entry: Entry) -> Row:
    """The row of a module whose content is not shown."""
    row = row_of(entry)
    inside = quantity(_count([item for item in entry.walk() if not item.is_module]), "layer")
    row.note = f"{inside}, {entry.mark}" if entry.mark else inside
    row.hides = True
    return row


def like_row(modules: Sequence[Entry], first: Entry) -> Row:
    """The row of siblings that are built like one that is shown."""
    row = _sum_row(modules)
    names = [module.name for module in modules]
    row.name, row.type, row.runs = names[0], modules[0].type, row_of(modules[0]).runs
    row.note = f"like {first.name}"
    if len(modules) > 1:
        row.name = f"{names[0]}{', ' if len(names) == 2 else ' … '}{names[-1]}"
        row.note = f"{len(names)} {row.note}"
    if any(module.alike != first.alike for module in modules):
        row.note += " in other sizes"
    return row


def free_row(layers: Sequence[Entry]) -> Row:
    """The row of layers in succession that compute nothing."""
    row = _sum_row(layers)
    row.labels = f"{layers[0].name} … {layers[-1].name}"
    row.note = f"{_count(layers)} free"
    row.shape = row_of(layers[-1]).shape
    return row


def rest_row(rows: Sequence[Row]) -> Row:
    """The row of rows that are too many to show."""
    row = Row(note=f"{len(rows):,} more rows", hides=True)
    for hidden in rows:
        row.amounts.add(hidden.amounts)
        row.all_params += hidden.all_params
    return row


def _sum_row(entries: Sequence[Entry]) -> Row:
    row, shape = Row(hides=True), ShapeRange()
    for entry in entries:
        row.amounts.add(entry.amounts)
        row.all_params += entry.all_params
        shape.merge(entry.shape)
    more = len(entries[0].more_outputs)
    row.shape = str(shape) + (f" +{more}" if more else "")
    return row


def _labels(layer: Entry) -> str:
    return f"{layer.name} … {layer.more_outputs[-1]}" if layer.more_outputs else layer.name


def _passes(layer: Entry) -> str:
    if layer.runs < layer.all_runs:
        return f"×{layer.runs}/{layer.all_runs}"
    return f"×{layer.runs}" if layer.runs > 1 else ""


def _count(layers: Sequence[Entry]) -> int:
    """How many layers they are, further outputs of one call included."""
    return sum(1 + len(layer.more_outputs) for layer in layers)
