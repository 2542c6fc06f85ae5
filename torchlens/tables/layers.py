"""The table of layers: one row for all passes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from torchlens._arrow import Cells, Column, build, coded
from torchlens._keys.names import operation_of
from torchlens._trace.layering import LayerEntry
from torchlens._trace.reader import TraceReader
from torchlens.tables.costs import cost_cells, total, total_duration
from torchlens.tables.frames import CallSites
from torchlens.tables.looks import Look, Looks
from torchlens.tables.schema import metadata_of, that_fit

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: Final = (
    Column("index", "int64", "number of the layer in capture order, from 0"),
    Column("layer_label", "string", "type and number, `relu_1`"),
    Column("kind", "category", "`input`, `call`, `boundary`, `buffer`, `source` or `output`"),
    Column("type", "category", "`func_name` without its outer underscores, as labels have it"),
    Column("func_name", "category", "the call as the code wrote it: `add_`, `__add__` for `x + 1`"),
    Column("operation", "category", "torch's own name, of the first pass"),
    Column("num_passes", "int64", "how many ops it has"),
    Column("output_slot", "int32", "which of a call's outputs its ops are, from 0"),
    Column("shape", "list<int64>", "of every pass; null where passes differ", True),
    Column("dtype", "category", "of every pass; null where passes differ", True),
    Column("device", "category", "of every pass; null where passes differ", True),
    Column("nbytes", "int64", "of the elements of all passes; null if 64 bits do not hold it", True, "bytes"),
    Column("module", "category", "`modules.address` of the module in which its ops ran"),
    Column("file", "category", "file of the innermost frame that is not torch's, of the first pass", True),
    Column("line", "int32", "line in that file, from 1", True),
    Column("parents", "list<string>", "labels of the layers its passes read, in order of first use"),
    Column("children", "list<string>", "labels of the layers that read its passes, in order of first use"),
    Column("params", "list<string>", "`params.address` of the parameters that any pass used"),
    Column("duration_ns", "int64", "time of all passes; null where `ops.duration_ns` is", True, "ns"),
    Column(
        "flops", "int64", "operations of all passes; null if one pass has none that is known", True, "FLOPs"
    ),
    Column("macs", "int64", "multiply-adds of all passes; null where `flops` is", True, "MACs"),
    Column("flops_reason", "category", "why `flops` and `macs` are null, of the first such pass", True),
)

T = TypeVar("T", bound=Hashable)


def layers_table(reader: TraceReader) -> pa.Table:
    """One row for each layer, in the order of their first passes."""
    cells = _names(reader) | _tensors(reader) | _neighbours(reader) | _amounts(reader)
    return build(COLUMNS, cells, metadata_of(reader.record, "layers"))


def _names(reader: TraceReader) -> dict[str, Cells]:
    record, rows, numbers, layers = reader.record, reader.rows, reader.numbers, reader.layering.layers
    firsts = [numbers.rows[layer.ops[0]] for layer in layers]
    kinds = [rows.kind[row] for row in firsts]
    sites = CallSites(reader)
    innermost = sites.innermost_of_users()
    at = [sites.of_row[row] for row in firsts]
    frames = [None if site is None else innermost[site] for site in at]
    return {
        "index": range(len(layers)),
        "layer_label": [layer.label for layer in layers],
        "kind": coded(kinds),
        "type": coded(layer.type for layer in layers),
        "func_name": coded(layer.func_name for layer in layers),
        "operation": coded(
            operation_of(reader.name(row)) if kind in ("call", "boundary") else kind
            for row, kind in zip(firsts, kinds)
        ),
        "num_passes": [len(layer.ops) for layer in layers],
        "output_slot": [numbers.slots[layer.ops[0]] for layer in layers],
        "module": coded(record.modules[layer.module].addresses[0] for layer in layers),
        "file": coded(frame and frame.file for frame in frames),
        "line": [frame and frame.line for frame in frames],
    }


def _tensors(reader: TraceReader) -> dict[str, Cells]:
    looks = Looks(reader.values.device)
    rows, slots = reader.numbers.rows, reader.numbers.slots

    def look(op: int) -> Look:
        row = rows[op]
        seen = reader.values.geometry(reader.tensor(row, slots[op]), row, after=True)
        return looks.found[looks.number(seen)]

    of_layers = [[look(op) for op in layer.ops] for layer in reader.layering.layers]
    return {
        "shape": coded(_shared(look.shape for look in of_layer) for of_layer in of_layers),
        "dtype": coded(_shared(look.dtype for look in of_layer) for of_layer in of_layers),
        "device": coded(_shared(look.device for look in of_layer) for of_layer in of_layers),
        "nbytes": that_fit(_sum(look.nbytes for look in of_layer) for of_layer in of_layers),
    }


def _neighbours(reader: TraceReader) -> dict[str, Cells]:
    layers, layer_of = reader.layering.layers, reader.layering.layer_of
    params = [entry.addresses[0] for entry in reader.record.params]

    def labels(layer: LayerEntry, neighbours: Sequence[Sequence[int]]) -> list[str]:
        found = dict.fromkeys(layer_of[other] for op in layer.ops for other in neighbours[op])
        return [layers[at].label for at in found]

    def used(layer: LayerEntry) -> list[str]:
        found = (reader.lineage.params[reader.numbers.rows[op]] for op in layer.ops)
        return [params[at] for at in dict.fromkeys(param for pairs in found for _, param in pairs)]

    return {
        "parents": [labels(layer, reader.parents) for layer in layers],
        "children": [labels(layer, reader.children) for layer in layers],
        "params": [used(layer) for layer in layers],
    }


def _amounts(reader: TraceReader) -> dict[str, Cells]:
    passes = [layer.ops for layer in reader.layering.layers]
    return {
        "duration_ns": [total_duration([reader.duration_of_op(op) for op in ops]) for ops in passes],
        **cost_cells([total([reader.cost_of_op(op) for op in ops]) for ops in passes]),
    }


def _shared(values: Iterable[T]) -> T | None:
    """The value that all have; None where they differ."""
    different = set(values)
    return different.pop() if len(different) == 1 else None


def _sum(numbers: Iterable[int | None]) -> int | None:
    """The sum; None where one of the numbers is not known."""
    known = list(numbers)
    return None if None in known else sum(number for number in known if number is not None)
