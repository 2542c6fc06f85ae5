"""The table of ops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from torchlens._arrow import Cells, Coded, Column, Joined, build, coded
from torchlens._keys.names import operation_of
from torchlens._trace.reader import TraceReader
from torchlens.tables.costs import cost_cells
from torchlens.tables.frames import CallSites
from torchlens.tables.looks import Looks
from torchlens.tables.schema import metadata_of

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: Final = (
    Column("index", "int64", "number of the op in capture order, from 0"),
    Column("label", "string", "layer and pass number, `relu_1:1`"),
    Column("layer", "category", "`layers.layer_label` of its layer"),
    Column("pass_number", "int32", "1 for the layer's first pass"),
    Column("call_index", "int64", "number of the call, from 0; the outputs of one call share it"),
    Column("output_slot", "int32", "which of the call's outputs it is, from 0"),
    Column("kind", "category", "`input`, `call`, `boundary`, `buffer`, `source` or `output`"),
    Column("type", "category", "`func_name` without its outer underscores, as labels have it"),
    Column("func_name", "category", "the call as the code wrote it: `add_`, `__add__` for `x + 1`"),
    Column(
        "spelling_known", "bool", "false where `func_name` is the plain name because the code did not tell"
    ),
    Column("operation", "category", "torch's own name: `add` for `+`, `+=`, `add_` alike"),
    Column(
        "name",
        "category",
        "what an input, output, source or buffer version goes by outside of the trace; null for other kinds",
        True,
    ),
    Column("composites", "list<string>", "Python-written torch functions around the call, outermost first"),
    Column("shape", "list<int64>", "size of each dimension; -1 where parts of a nested tensor differ"),
    Column("dtype", "category", "its dtype, `float32`"),
    Column("device", "category", "where it was during the run: `cpu`, `cuda:0`"),
    Column(
        "nbytes", "int64", "of its elements, of a view too; null if 64 bits do not hold it", True, "bytes"
    ),
    Column("requires_grad", "bool", "whether the value needed a gradient"),
    Column("is_inplace", "bool", "whether the call wrote into this tensor rather than making it"),
    Column("module", "category", "`modules.address` of the innermost module that was running"),
    Column("module_call", "category", "`module_calls.label` of its call; null outside any", True),
    Column("call_site", "int32", "`frames.call_site`; null where no frame is between module and op", True),
    Column("file", "category", "file of the innermost frame that is not torch's; null if all are", True),
    Column("line", "int32", "line in that file, from 1", True),
    Column("site_key", "string", "module address, type, output slot and ordinal in the module call"),
    Column("parents", "list<string>", "labels of the ops it read, each once, in order of first use"),
    Column("params", "list<string>", "`params.address` of the parameters it used"),
    Column("buffers", "list<string>", "`buffers.address` of the buffers whose versions it read"),
    Column("reads", "list<string>", "how the value left for Python, in order: `item`, `__bool__`, `numpy`"),
    Column(
        "duration_ns", "int64", "time of the call, on its first output; null if it is no call", True, "ns"
    ),
    Column(
        "flops", "int64", "operations of the call, on its first output; a multiply-add is two", True, "FLOPs"
    ),
    Column("macs", "int64", "multiply-adds of the call, on its first output", True, "MACs"),
    Column("flops_reason", "category", "why `flops` and `macs` are null", True),
    Column("grad_enabled", "bool", "whether grad mode was on"),
    Column("autocast", "category", "what autocast was on for, `cuda: bfloat16`; null when off", True),
)


def ops_table(reader: TraceReader) -> pa.Table:
    """One row for each op, in capture order."""
    cells = _names(reader) | _tensors(reader) | _places(reader) | _origins(reader) | _amounts(reader)
    return build(COLUMNS, cells, metadata_of(reader.record, "ops"))


def _names(reader: TraceReader) -> dict[str, Cells]:
    rows, numbers, layering = reader.rows, reader.numbers, reader.layering
    layers, layer_of = layering.layers, layering.layer_of
    names = [reader.name(row) for row in range(len(rows))]
    operations = {name: operation_of(name) for name in set(names)}
    kinds = rows.kind
    return {
        "index": range(len(layer_of)),
        "label": reader.op_labels,
        "layer": Coded(layer_of, [layer.label for layer in layers]),
        "pass_number": layering.pass_of,
        "call_index": numbers.rows,
        "output_slot": numbers.slots,
        "kind": Coded(numbers.rows, kinds),
        "type": Coded(layer_of, [layer.type for layer in layers]),
        "func_name": Coded(layer_of, [layer.func_name for layer in layers]),
        "spelling_known": Coded(numbers.rows, [reader.is_spelling_known(row) for row in range(len(rows))]),
        "operation": Coded(
            numbers.rows,
            coded(operations[n] if k in ("call", "boundary") else k for k, n in zip(kinds, names)),
        ),
        "name": Coded(numbers.rows, coded(map(reader.given_name, range(len(rows))))),
    }


def _tensors(reader: TraceReader) -> dict[str, Cells]:
    values, rows, slots = reader.values, reader.numbers.rows, reader.numbers.slots
    tensors = [reader.tensor(row, slot) for row, slot in zip(rows, slots)]
    looks = Looks(values.device)
    seen = [looks.number(values.geometry(tensor, row, after=True)) for tensor, row in zip(tensors, rows)]
    return {
        **looks.cells(seen),
        "requires_grad": [values.requires_grad(tensor, row) for tensor, row in zip(tensors, rows)],
        "is_inplace": [values.wrote(row, slot) for row, slot in zip(rows, slots)],
    }


def _places(reader: TraceReader) -> dict[str, Cells]:
    record, rows, of_op = reader.record, reader.rows, reader.numbers.rows
    addresses = [entry.addresses[0] for entry in record.modules]
    contexts = record.contexts
    sites = CallSites(reader)
    innermost = sites.innermost_of_users()
    composites = {site: reader.composites(row) for site, row in sites.first_rows.items()}

    def by_call(cells: Cells) -> Coded:
        return Coded(of_op, Coded(rows.call, cells))

    def by_site(cells: Cells) -> Coded:
        return Coded(of_op, Coded(sites.of_row, cells))

    def by_context(cells: Cells) -> Coded:
        return Coded(of_op, Coded(rows.context, cells))

    return {
        "composites": Coded(of_op, coded(composites[site] for site in rows.site)),
        "module": by_call([addresses[call.module] for call in record.module_calls]),
        "module_call": by_call([None, *reader.call_labels[1:]]),
        "call_site": Coded(of_op, sites.of_row),
        "file": by_site([frame and frame.file for frame in innermost]),
        "line": by_site([frame and frame.line for frame in innermost]),
        "site_key": reader.site_keys,
        "grad_enabled": by_context([context.grad_enabled for context in contexts]),
        "autocast": by_context([_autocast(context.autocast) for context in contexts]),
    }


def _origins(reader: TraceReader) -> dict[str, Cells]:
    first, edges, reads = reader.numbers.first, reader.lineage.parents, reader.reads_of_op
    params = [entry.addresses[0] for entry in reader.record.params]
    buffers = {first[row]: entry.addresses[0] for entry in reader.record.buffers for row in entry.rows}
    parents: list[int] = []  # not `reader.parents`: objects for each op slow the garbage collector down
    sizes: list[int] = []
    read: list[tuple[str, ...]] = []
    for of_op in edges:
        found = dict.fromkeys([op for _, op in of_op])
        parents += found
        sizes.append(len(found))
        read.append(tuple(dict.fromkeys([buffers[op] for op in found if op in buffers])) if buffers else ())
    used = coded(
        tuple([params[at] for at in dict.fromkeys([param for _, param in held])]) if held else ()
        for held in reader.lineage.params
    )
    return {
        "parents": Joined(Coded(parents, reader.op_labels), sizes),
        "params": Coded(reader.numbers.rows, used),
        "buffers": coded(read),
        "reads": coded(tuple(reads.get(op, ())) for op in range(len(edges))),
    }


def _amounts(reader: TraceReader) -> dict[str, Cells]:
    ops = range(len(reader.numbers.rows))
    return {
        "duration_ns": [reader.duration_of_op(op) for op in ops],
        **cost_cells([reader.cost_of_op(op) for op in ops]),
    }


def _autocast(dtypes: Mapping[str, str]) -> str | None:
    return ", ".join(f"{device}: {dtype}" for device, dtype in dtypes.items()) or None
