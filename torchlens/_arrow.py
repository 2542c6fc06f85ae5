"""Arrow tables, built column by column. The only file that imports pyarrow, and only when a table is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

ColumnType: TypeAlias = Literal[
    "bool", "int32", "int64", "float64", "string", "category", "list<int64>", "list<int32>", "list<string>"
]
"""`category` is a string by its number in a dictionary: for columns of few different words."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: what it holds, in which unit, and whether a cell may be empty."""

    name: str
    type: ColumnType
    meaning: str
    nullable: bool = False


def schema_of(columns: Sequence[Column], metadata: Mapping[str, str]) -> pa.Schema:
    """The Arrow schema of a table of these columns; each field's metadata has its meaning."""
    import pyarrow as pa

    fields = [
        pa.field(column.name, _type_of(column.type), column.nullable, {"meaning": column.meaning})
        for column in columns
    ]
    return pa.schema(fields, {key.encode(): text.encode() for key, text in metadata.items()})


def build(
    columns: Sequence[Column], values: Mapping[str, Sequence[Any]], metadata: Mapping[str, str]
) -> pa.Table:
    """A table of these columns; `values` has a sequence for each, all of one length."""
    import pyarrow as pa

    arrays: list[pa.Array[Any]] = [pa.array(values[column.name], _type_of(column.type)) for column in columns]
    return pa.Table.from_arrays(arrays, schema=schema_of(columns, metadata))


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
