"""The tables of modules and of their calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from torchlens._arrow import Cells, Column, build, coded
from torchlens._records import ModuleCallEntry
from torchlens._trace.reader import TraceReader
from torchlens._values.plain import recorded_in
from torchlens.tables.schema import metadata_of

if TYPE_CHECKING:
    import pyarrow as pa

MODULE_COLUMNS: Final = (
    Column("index", "int64", "number of the module, from 0, which is the root"),
    Column(
        "address", "string", "dotted name in the model, the first of several; the empty text for the root"
    ),
    Column("addresses", "list<string>", "all its names"),
    Column("type", "category", "name of its class"),
    Column("parent", "category", "`address` of what holds it; null for the root and outside of it", True),
    Column("training", "bool", "whether it was in training mode when the capture ended"),
    Column("num_calls", "int64", "how often it was called; 0 if it was not reached"),
    Column("num_ops", "int64", "how many ops ran in it, and not in a module called within it"),
    Column("params", "list<string>", "`params.address` of its own parameters, without its children's"),
    Column("buffers", "list<string>", "`buffers.address` of its own buffers, without its children's"),
)
CALL_COLUMNS: Final = (
    Column("index", "int64", "number of the call in the order of their beginnings, from 0"),
    Column("label", "string", "address and number, `block:2`; `:1` for the root's first call"),
    Column("module", "category", "`modules.address` of its module"),
    Column("number", "int64", "1 for the module's first call"),
    Column("parent", "category", "`label` of the call it was made in; null outside any", True),
    Column("returned", "bool", "whether it came to its end"),
    Column("num_ops", "int64", "how many ops ran in it, and not in a call within it"),
    Column("inputs", "list<string>", "`ops.label` of the tensors it was given, flat; parameters have none"),
    Column("outputs", "list<string>", "`ops.label` of the tensors it returned; null if it did not", True),
)


def modules_table(reader: TraceReader) -> pa.Table:
    """One row for each module, called or not, the root first."""
    record, entries = reader.record, reader.record.modules
    params = [entry.addresses[0] for entry in record.params]
    buffers = [entry.addresses[0] for entry in record.buffers]
    ops = [0] * len(entries)
    for call, inside in zip(record.module_calls, reader.ops_of_call):
        ops[call.module] += len(inside)
    cells: dict[str, Cells] = {
        "index": range(len(entries)),
        "address": [entry.addresses[0] for entry in entries],
        "addresses": [entry.addresses for entry in entries],
        "type": coded(entry.type_name for entry in entries),
        "parent": coded(
            None if entry.parent is None else entries[entry.parent].addresses[0] for entry in entries
        ),
        "training": [entry.training for entry in entries],
        "num_calls": list(map(len, reader.module_calls_of)),
        "num_ops": ops,
        "params": [[params[at] for at in entry.params] for entry in entries],
        "buffers": [[buffers[at] for at in entry.buffers] for entry in entries],
    }
    return build(MODULE_COLUMNS, cells, metadata_of(record, "modules"))


def module_calls_table(reader: TraceReader) -> pa.Table:
    """One row for each call of a module, in the order in which they began."""
    record, labels = reader.record, reader.call_labels
    calls = record.module_calls[1:]  # the first is the space outside all calls
    cells: dict[str, Cells] = {
        "index": range(len(calls)),
        "label": labels[1:],
        "module": coded(record.modules[call.module].addresses[0] for call in calls),
        "number": [call.number for call in calls],
        "parent": coded(labels[call.parent] if call.parent > 0 else None for call in calls),
        "returned": [call.end is not None for call in calls],
        "num_ops": list(map(len, reader.ops_of_call[1:])),
        "inputs": [_makers(reader, [call.args, call.kwargs], call.start) for call in calls],
        "outputs": [_outputs(reader, call) for call in calls],
    }
    return build(CALL_COLUMNS, cells, metadata_of(record, "module_calls"))


def _outputs(reader: TraceReader, call: ModuleCallEntry) -> Sequence[str] | None:
    return None if call.end is None else _makers(reader, call.output, call.end)


def _makers(reader: TraceReader, value: object, before: int) -> Sequence[str]:
    """The labels of the ops that last gave the tensors in a value."""
    found = (reader.maker_before(tensor, before) for tensor in recorded_in(value))
    return [reader.op_labels[op] for op in found if op is not None]
