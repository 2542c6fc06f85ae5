"""What each layer of a trace keeps, as numbers and as a table."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import torch
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from torchlens._trace.lookup import missing
from torchlens._trace.reader import TraceReader
from torchlens._values.geometry import dtype_name, shape_of
from torchlens.errors import MissingKeyError
from torchlens.report.amounts import ShapeRange, byte_count, quantity
from torchlens.report.memory import (
    given_storages,
    held_storages,
    held_tensors,
    parameter_bytes,
    storages_of,
)
from torchlens.report.text import Printable, Symbols, fact_grid

_SHOWN: Final = 20
"""Rows of the printed table."""


@dataclass(frozen=True, slots=True)
class PlannedLayer:
    """One layer and the memory its values take."""

    label: str
    address: str
    """The module that runs it; `""` is the root."""
    func_name: str
    shape: tuple[int, ...]
    """Of the first pass."""
    shapes: str
    """Of all passes, as text: `1..5×8` where a size varies."""
    dtype: torch.dtype
    num_passes: int
    nbytes: int
    """Bytes of the storages that its passes are the first to have a value in. A view, and what is written in
    place, adds none, and parameters count nowhere."""
    alone_bytes: int
    """What a trace would keep if it kept this layer only: the whole storages of its values."""
    storages: Mapping[int, int]
    """Each storage of its values, by number, and its bytes: layers that share one name it alike."""


@dataclass(frozen=True, repr=False)
class Plan(Printable):
    """Bytes that a trace would keep, layer by layer. It holds text and numbers only.

    The totals are those of `trace.memory` for a trace of the same run.

    >>> import torch, torchlens as tl
    >>> planned = tl.plan(torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU()), torch.zeros(4, 8))
    >>> [row.label for row in planned.largest(2)]
    ['linear_1', 'relu_1']
    """

    name: str
    """The root's class."""
    layers: tuple[PlannedLayer, ...]
    """In capture order."""
    kept_bytes: int
    """Distinct storages of what the run computes."""
    copied_bytes: int
    """Saved before in-place writes."""
    given_bytes: int
    """Inputs, sources, and buffers of the model: held by the caller and the model anyway."""
    parameter_bytes: int

    def largest(self, n: int) -> list[PlannedLayer]:
        """The `n` layers with the most bytes, the largest first."""
        return sorted(self.layers, key=lambda layer: -layer.nbytes)[:n]

    def __getitem__(self, label: str) -> PlannedLayer:
        """The layer with this label."""
        found = self._by_label.get(label)
        if found is None:
            raise MissingKeyError(missing(label, "layer", self._by_label))
        return found

    @cached_property
    def _by_label(self) -> Mapping[str, PlannedLayer]:
        return {layer.label: layer for layer in self.layers}

    def parts(self, width: int, symbols: Symbols) -> Iterator[RenderableType]:
        """Totals, and the layers with the most bytes."""
        title = symbols.put(f" · planned, {quantity(len(self.layers), 'layer')}")
        yield Text.assemble((self.name, "bold cyan"), title)
        yield fact_grid(self._totals(), symbols)
        yield ""
        yield _table(self.largest(_SHOWN), symbols)
        rest = len(self.layers) - _SHOWN
        if rest > 0:
            hidden = sum(layer.nbytes for layer in self.largest(len(self.layers))[_SHOWN:])
            yield Text(f"and {quantity(rest, 'more layer')} with {byte_count(hidden)}", style="dim")

    def _totals(self) -> Iterator[tuple[str, str]]:
        yield "values", f"{byte_count(self.kept_bytes)} kept by a trace of these layers"
        if self.copied_bytes:
            yield "copies", f"{byte_count(self.copied_bytes)} saved before in-place writes"
        yield "given", f"{byte_count(self.given_bytes)} of inputs, sources and buffers, held elsewhere too"
        yield "parameters", f"{byte_count(self.parameter_bytes)}, held by the model"


def plan_of(reader: TraceReader, copied_bytes: int, meant: Container[int] | None = None) -> Plan:
    """The plan of the run that a record is of; `meant` are the ops whose values count, if not all do."""
    storages = held_storages(reader, meant)
    given = given_storages(reader, storages)
    numbers = {key: number for number, key in enumerate(storages)}
    held: list[dict[int, int]] = [{} for _ in reader.layering.layers]
    shapes = [ShapeRange() for _ in held]
    first: dict[int, tuple[tuple[int, ...], torch.dtype]] = {}
    for op, tensor in held_tensors(reader, meant):
        layer = reader.layering.layer_of[op]
        first.setdefault(layer, (shape_of(tensor), tensor.dtype))
        shapes[layer].add(shape_of(tensor))
        held[layer].update({numbers[key]: nbytes for key, nbytes in storages_of(tensor) if key in numbers})
    own = [0] * len(held)
    for op, nbytes in storages.values():
        own[reader.layering.layer_of[op]] += nbytes
    record = reader.record
    return Plan(
        name=record.modules[0].type_name,
        layers=tuple(
            PlannedLayer(
                label=entry.label,
                address=record.modules[entry.module].addresses[0],
                func_name=entry.func_name,
                shape=first[at][0],
                shapes=str(shapes[at]),
                dtype=first[at][1],
                num_passes=len(entry.ops),
                nbytes=own[at],
                alone_bytes=sum(held[at].values()),
                storages=held[at],
            )
            for at, entry in enumerate(reader.layering.layers)
            if at in first
        ),
        kept_bytes=sum(nbytes for key, (_, nbytes) in storages.items() if key not in given),
        copied_bytes=copied_bytes,
        given_bytes=sum(storages[key][1] for key in given),
        parameter_bytes=parameter_bytes(record),
    )


def _table(layers: Sequence[PlannedLayer], symbols: Symbols) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("layer", no_wrap=True, style="green")
    table.add_column("module", overflow="fold", style="bold")
    table.add_column("output", no_wrap=True)
    table.add_column("kept", justify="right", no_wrap=True)
    table.add_column("alone", justify="right", no_wrap=True)
    for layer in layers:
        table.add_row(*map(symbols.put, _cells(layer)))
    return table


def _cells(layer: PlannedLayer) -> Iterable[str]:
    passes = f" ×{layer.num_passes}" if layer.num_passes > 1 else ""
    yield f"{layer.label}{passes}"
    yield layer.address
    yield f"{layer.shapes} {dtype_name(layer.dtype)}"
    yield byte_count(layer.nbytes)
    yield byte_count(layer.alone_bytes)
