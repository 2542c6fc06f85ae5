"""Arrow tables, built column by column. The only file that imports pyarrow, and only when a table is made."""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

if TYPE_CHECKING:
    from io import IOBase

    import pyarrow as pa

ColumnType: TypeAlias = Literal[
    "bool", "int32", "int64", "float64", "string", "category", "list<int64>", "list<int32>", "list<string>"
]
"""`category` is a string by its number in a dictionary: for columns of few different words."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: what it holds, whether a cell may be null, and in which unit it is."""

    name: str
    type: ColumnType
    meaning: str
    nullable: bool = False
    unit: str | None = None


@dataclass(frozen=True, slots=True)
class Coded:
    """Cells by their number in a sequence of others; None is null."""

    codes: Sequence[int | None]
    of: Cells


@dataclass(frozen=True, slots=True)
class Joined:
    """Cells that are lists: the items of all of them in one sequence, and how many each cell has."""

    items: Cells
    sizes: Sequence[int]


Cells: TypeAlias = "Sequence[Any] | Coded | Joined"
"""The cells of one column: one by one, or in a form that spares an object for each."""


def coded(cells: Iterable[Hashable]) -> Coded:
    """Cells of which few differ; None is null."""
    numbers: dict[Hashable, int] = {}
    codes = [None if cell is None else numbers.setdefault(cell, len(numbers)) for cell in cells]
    return Coded(codes, list(numbers))


def schema_of(columns: Sequence[Column], metadata: Mapping[str, str]) -> pa.Schema:
    """The Arrow schema of a table of these columns; each field's metadata has its meaning and unit."""
    import pyarrow as pa

    fields = [
        pa.field(column.name, _type_of(column.type), column.nullable, _about(column)) for column in columns
    ]
    return pa.schema(fields, {key.encode(): text.encode() for key, text in metadata.items()})


def build(columns: Sequence[Column], values: Mapping[str, Cells], metadata: Mapping[str, str]) -> pa.Table:
    """A table of these columns; `values` has the cells of each, all of one number."""
    import pyarrow as pa

    arrays = [_array(values[column.name], _type_of(column.type)) for column in columns]
    return pa.Table.from_arrays(arrays, schema=schema_of(columns, metadata))


def is_category(data_type: pa.DataType) -> bool:
    """Whether cells are numbers of words in a dictionary."""
    import pyarrow as pa

    return pa.types.is_dictionary(data_type)


def _array(cells: Cells, data_type: pa.DataType) -> pa.Array[Any]:
    import pyarrow as pa

    if isinstance(cells, Coded):
        return _array(cells.of, data_type).take(pa.array(cells.codes, pa.int32()))
    if isinstance(cells, Joined):
        assert isinstance(data_type, pa.ListType), f"a column of {data_type} holds no lists"
        offsets = pa.array(list(accumulate(cells.sizes, initial=0)), pa.int32())
        items = _array(cells.items, cast("pa.DataType", data_type.value_type))
        return pa.ListArray.from_arrays(offsets, items)
    try:
        return pa.array(cells, data_type)
    except UnicodeEncodeError:
        return pa.array([_encodable(cell) for cell in cells], data_type)


def _encodable(cell: object) -> object:
    """Text with `\\udc80` in place of half a character, which UTF-8 lacks but a path or name may have."""
    if isinstance(cell, str):
        return cell.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(cell, (list, tuple)):
        return [_encodable(item) for item in cast("list[object] | tuple[object, ...]", cell)]
    return cell


def to_octets(table: pa.Table) -> bytes:
    """The table in Arrow's streaming format, uncompressed."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def from_octets(octets: bytes, columns: Sequence[Column], num_rows: int) -> dict[str, list[Any]]:
    """The columns of a table from its bytes, which nobody vouches for; a `ValueError` if anything is amiss.

    Nothing compressed is read, so that what comes out is no larger than what went in.
    """
    import pyarrow as pa

    try:
        for message in pa.ipc.MessageReader.open_stream(pa.BufferReader(octets)):
            if is_compressed(message.metadata.to_pybytes()):
                raise ValueError("it is compressed")
        table = pa.ipc.open_stream(pa.BufferReader(octets)).read_all()
        table.validate(full=True)
        if table.column_names != [column.name for column in columns] or table.num_rows != num_rows:
            raise ValueError(f"it has {table.num_rows} rows of {', '.join(table.column_names)[:200]}")
        for column in columns:
            held = table[column.name]
            if held.type != _type_of(column.type) or (held.null_count and not column.nullable):
                raise ValueError(f"its column {column.name} is of another type, or has gaps")
        return {column.name: table[column.name].to_pylist() for column in columns}
    except (pa.ArrowException, OSError, MemoryError, OverflowError, UnicodeDecodeError) as error:
        raise ValueError(f"it is no table: {error}") from error


def is_compressed(metadata: bytes) -> bool:
    """Whether a message of a stream says that its body is compressed.

    Reads the one field from the message's flatbuffer, as laid out in
    https://arrow.apache.org/docs/format/Columnar.html#format-metadata.
    What can't be read counts as compressed.
    """
    try:
        message = int.from_bytes(metadata[:4], "little")
        kind = metadata[_field(metadata, message, _HEADER_TYPE) or len(metadata)]
        header = _pointed_at(metadata, message, _HEADER)
        if kind == _DICTIONARY_BATCH:
            header, kind = _pointed_at(metadata, header, _DATA), _RECORD_BATCH
        return kind == _RECORD_BATCH and _field(metadata, header, _COMPRESSION) != 0
    except (struct.error, IndexError):
        return True


_HEADER_TYPE: Final = 1
_HEADER: Final = 2
_DATA: Final = 1
_COMPRESSION: Final = 3
"""Numbers of fields in the tables Message, DictionaryBatch and RecordBatch."""
_DICTIONARY_BATCH: Final = 2
_RECORD_BATCH: Final = 3


def _field(octets: bytes, table: int, number: int) -> int:
    """Where a field of a flatbuffer's table lies; 0 if the table has none."""
    fields = table - struct.unpack_from("<i", octets, table)[0]
    if fields < 0 or 4 + 2 * number >= struct.unpack_from("<H", octets, fields)[0]:
        return 0
    offset: int = struct.unpack_from("<H", octets, fields + 4 + 2 * number)[0]
    return offset and table + offset


def _pointed_at(octets: bytes, table: int, number: int) -> int:
    at = _field(octets, table, number)
    target: int = at + struct.unpack_from("<I", octets, at)[0]
    return target


def _about(column: Column) -> dict[str | bytes, str | bytes]:
    unit: dict[str | bytes, str | bytes] = {} if column.unit is None else {"unit": column.unit}
    return {"meaning": column.meaning, **unit}


def _type_of(name: ColumnType) -> pa.DataType:
    import pyarrow as pa

    makers: Final[dict[ColumnType, Callable[[], pa.DataType]]] = {
        "bool": pa.bool_,
        "int32": pa.int32,
        "int64": pa.int64,
        "float64": pa.float64,
        "string": pa.string,
        "category": lambda: pa.dictionary(pa.int32(), pa.string()),
        "list<int32>": lambda: pa.list_(pa.int32()),
        "list<int64>": lambda: pa.list_(pa.int64()),
        "list<string>": lambda: pa.list_(pa.string()),
    }
    return makers[name]()


def write_parquet(table: pa.Table, file: IOBase) -> None:
    """Write a table as a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(table, pa.PythonFile(file, mode="w"))


def write_ipc(table: pa.Table, file: IOBase) -> None:
    """Write a table as an Arrow IPC file."""
    import pyarrow as pa

    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
