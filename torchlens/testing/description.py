"""A trace as a snapshot describes it: a header, and for each layer what a reviewer would look at."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import prod
from pathlib import Path
from typing import Literal, TypeAlias

from torch import Tensor

from torchlens._trace.layering import LayerEntry
from torchlens._trace.reader import TraceReader
from torchlens._unseen import unseen
from torchlens._values.geometry import dtype_name, shape_of
from torchlens._values.ghost import Recorded
from torchlens.errors import UnreadableError
from torchlens.report.amounts import quantity
from torchlens.report.torch_files import is_of_torch
from torchlens.testing.statistics import StatisticTexts, statistic_texts
from torchlens.testing.unfilled import find_unfilled

Values: TypeAlias = Literal["stats", "exact"] | None
"""What is compared of the values: statistics, every element, or nothing."""


@dataclass(frozen=True, slots=True)
class Header:
    """What is said of a trace as a whole."""

    model: str
    status: str
    parameters: str
    """Elements, and in how many tensors: those of the whole model, used or not."""
    values: str
    edges: str
    """How many, and a digest of which op reads which."""
    made_with: str
    """Versions: a note, which is not compared."""


@dataclass(frozen=True, slots=True)
class LayerLine:
    """What is said of one layer. Names are as the trace has them; texts that name tensors are for people."""

    label: str
    passes: int
    tensors: str
    """Shape, dtype and whether it was written in place; runs of passes in which these differ, in order."""
    module: str
    parents: Mapping[str, int]
    """Layer label to the number of edges from its ops to those of this layer, in order of first use."""
    params: Mapping[str, str]
    """Address to shape, and dtype where it is not the layer's."""
    values: StatisticTexts | None = None
    first_op: int = field(default=0, compare=False)
    """Index of its first pass in the trace; not known of a layer that was read from a page."""
    place: str = field(default="", compare=False)
    """`net.py:7`: where it was called, in the innermost file that is not torch's; empty if not known."""

    @property
    def type(self) -> str:
        """The label without its number."""
        return self.label.rpartition("_")[0]

    @property
    def dtypes(self) -> list[str]:
        """The dtypes of its passes."""
        return [run.split(" ")[1] for run in self.tensors.split("; ")]

    @property
    def is_partly_known(self) -> bool:
        """Whether there are values among its passes that nothing is said of."""
        return self.values is not None and not {"kept", "unfilled"}.isdisjoint(self.values)

    def param(self, address: str) -> tuple[str, str]:
        """Shape and dtype of a parameter that it uses."""
        shape, _, dtype = self.params[address].partition(" ")
        return shape, dtype or self.dtypes[0]


@dataclass(frozen=True, slots=True)
class Description:
    """A trace as a snapshot has it."""

    header: Header
    layers: Sequence[LayerLine]


def describe(reader: TraceReader, values: Values) -> Description:
    """Describe a trace, with the statistics of its values unless `values` is None."""
    with unseen():
        unfilled = None if values is None else find_unfilled(reader)
        lines = tuple(_line(reader, entry, unfilled) for entry in reader.layering.layers)
    return Description(_header(reader, values), lines)


def _header(reader: TraceReader, values: Values) -> Header:
    record = reader.record
    sizes = [_numel(entry.tensor) for entry in record.params]
    return Header(
        record.modules[0].type_name,
        record.status,
        f"{sum(sizes)} in {quantity(len(sizes), 'tensor')}",
        values or "none",
        f"{sum(map(len, reader.parents))}, digest {_digest(reader)}",
        f"torch {record.options.torch_version}",
    )


def _numel(param: Recorded) -> int:
    """Elements of a parameter: none, where a lazy module has not run."""
    try:
        return prod(shape_of(param))
    except (RuntimeError, ValueError):
        return 0


def _digest(reader: TraceReader) -> str:
    """Of which op reads which: what the layers' lines do not say of several passes."""
    labels = reader.op_labels
    text = hashlib.sha256()
    for label, parents in zip(labels, reader.parents):
        text.update(f"{label} {' '.join(labels[parent] for parent in parents)}\n".encode())
    return text.hexdigest()[:12]


def _line(reader: TraceReader, entry: LayerEntry, unfilled: frozenset[int] | None) -> LayerLine:
    layer_of, layers = reader.layering.layer_of, reader.layering.layers
    parents = Counter(layer_of[parent] for op in entry.ops for parent in reader.parents[op])
    tensors = [_tensor(reader, op) for op in entry.ops]
    return LayerLine(
        entry.label,
        len(entry.ops),
        "; ".join(_runs(tensors)),
        reader.record.modules[entry.module].addresses[0],
        {layers[parent].label: count for parent, count in parents.items()},
        dict(_params(reader, entry, {text.split(" ")[1] for text in tensors})),
        None if unfilled is None else _statistics(reader, entry.ops, unfilled),
        entry.ops[0],
        _place(reader, entry.ops[0]),
    )


def _place(reader: TraceReader, op: int) -> str:
    frames = reader.frames(reader.numbers.rows[op])
    innermost = next((frame for frame in reversed(frames) if not is_of_torch(frame.file)), None)
    if innermost is None or innermost.line is None:
        return ""
    return f"{Path(innermost.file).name}:{innermost.line}"


def _tensor(reader: TraceReader, op: int) -> str:
    row, slot = reader.numbers.rows[op], reader.numbers.slots[op]
    seen = reader.values.geometry(reader.tensor(row, slot), row, after=True)
    inplace = " in place" if reader.values.wrote(row, slot) else ""
    return f"{_shape(shape_of(seen))} {dtype_name(seen.dtype)}{inplace}"


def _runs(texts: Sequence[str]) -> Iterator[str]:
    """Each text once where it follows itself, with how often if there are others."""
    runs = [(text, len(list(same))) for text, same in groupby(texts)]
    for text, count in runs:
        yield f"{text} x{count}" if len(runs) > 1 and count > 1 else text


def _params(reader: TraceReader, entry: LayerEntry, dtypes: set[str]) -> Iterator[tuple[str, str]]:
    rows = dict.fromkeys(reader.numbers.rows[op] for op in entry.ops)
    used = dict.fromkeys(param for row in rows for _, param in reader.lineage.params[row])
    for param in used:
        held = reader.record.params[param]
        dtype = dtype_name(held.tensor.dtype)
        text = _shape(shape_of(held.tensor))
        yield held.addresses[0], text if dtypes == {dtype} else f"{text} {dtype}"


def _statistics(reader: TraceReader, ops: Sequence[int], unfilled: frozenset[int]) -> StatisticTexts:
    filled = [op for op in ops if op not in unfilled]
    found = statistic_texts(value_of(reader, op) for op in filled)
    left_out = len(ops) - len(filled)
    return {**found, "unfilled": f"{left_out}/{len(ops)}"} if left_out else found


def value_of(reader: TraceReader, op: int) -> Tensor | None:
    """The value of an op; None where it was not kept, was overwritten or lies on `meta`."""
    row, slot = reader.numbers.rows[op], reader.numbers.slots[op]
    try:
        value = reader.values.read(reader.tensor(row, slot), row, after=True, what=reader.op_labels[op])
    except UnreadableError:
        return None
    return None if value.is_meta else value.detach()


def _shape(shape: Sequence[int]) -> str:
    return "x".join("?" if size < 0 else str(size) for size in shape) or "scalar"
