"""The tables of parameters and buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from torchlens._arrow import Cells, Column, build
from torchlens._trace.reader import TraceReader
from torchlens.report.sizes import numel
from torchlens.tables.looks import Looks
from torchlens.tables.schema import metadata_of

if TYPE_CHECKING:
    import pyarrow as pa

PARAM_COLUMNS: Final = (
    Column("index", "int64", "number of the parameter, from 0"),
    Column("address", "string", "dotted name in the model, the first of several"),
    Column("addresses", "list<string>", "all its names: ties are one parameter"),
    Column("shape", "list<int64>", "size of each dimension; null while a lazy module has not run", True),
    Column("dtype", "category", "its dtype, `float32`"),
    Column("device", "category", "where it is: `cpu`, `cuda:0`"),
    Column("numel", "int64", "how many there are; null while a lazy module has not run", True, "elements"),
    Column("nbytes", "int64", "of the elements; null while a lazy module has not run", True, "bytes"),
    Column("trainable", "bool", "whether it takes gradients"),
    Column("ops", "list<string>", "`ops.label` of the ops that used it, in capture order"),
)
BUFFER_COLUMNS: Final = (
    Column("index", "int64", "number of the buffer, from 0"),
    Column("address", "string", "dotted name in the model, the first of several"),
    Column("addresses", "list<string>", "all its names"),
    Column("persistent", "bool", "whether it is part of the model's state_dict"),
    Column("shape", "list<int64>", "size of each dimension of the initial value; null if it held none", True),
    Column("dtype", "category", "dtype of the initial value; null if it held none", True),
    Column("device", "category", "device of the initial value; null if it held none", True),
    Column("nbytes", "int64", "of the initial value; null if it held none", True, "bytes"),
    Column("versions", "list<string>", "`ops.label` of its versions, the starting value first"),
)


def params_table(reader: TraceReader) -> pa.Table:
    """One row for each parameter of the model, ties once."""
    entries, labels = reader.record.params, reader.op_labels
    looks = Looks(reader.values.device)
    cells: dict[str, Cells] = {
        "index": range(len(entries)),
        "address": [entry.addresses[0] for entry in entries],
        "addresses": [entry.addresses for entry in entries],
        **looks.cells([looks.number(entry.tensor) for entry in entries]),
        "numel": [numel(entry.tensor) for entry in entries],
        "trainable": [entry.tensor.requires_grad for entry in entries],
        "ops": [[labels[op] for op in ops] for ops in reader.ops_of_param],
    }
    return build(PARAM_COLUMNS, cells, metadata_of(reader.record, "params"))


def buffers_table(reader: TraceReader) -> pa.Table:
    """One row for each buffer of the model."""
    entries, labels, first = reader.record.buffers, reader.op_labels, reader.numbers.first
    values = reader.values
    looks = Looks(values.device)
    initial = [
        None if entry.initial is None else values.geometry(entry.initial, -1, after=True) for entry in entries
    ]
    cells: dict[str, Cells] = {
        "index": range(len(entries)),
        "address": [entry.addresses[0] for entry in entries],
        "addresses": [entry.addresses for entry in entries],
        "persistent": [entry.persistent for entry in entries],
        **looks.cells([None if tensor is None else looks.number(tensor) for tensor in initial]),
        "versions": [[labels[first[row]] for row in entry.rows] for entry in entries],
    }
    return build(BUFFER_COLUMNS, cells, metadata_of(reader.record, "buffers"))
