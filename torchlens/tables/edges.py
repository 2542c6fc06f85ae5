"""The table of edges: which op read which."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from torchlens._arrow import Cells, Coded, Column, build, coded
from torchlens._trace.reader import TraceReader
from torchlens._values.lineage import HOST
from torchlens.tables.schema import metadata_of

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: Final = (
    Column("parent", "category", "`ops.label` of the op that was read"),
    Column("child", "category", "`ops.label` of the op that read it"),
    Column("parent_index", "int64", "`ops.index` of the parent"),
    Column("child_index", "int64", "`ops.index` of the child"),
    Column(
        "positions", "list<string>", "argument positions it fills: `0`, `1.2` in a list, a keyword's name"
    ),
    Column("host", "bool", "whether data came through numpy or Python; its position then is `host`"),
)


def edges_table(reader: TraceReader) -> pa.Table:
    """One row for each pair of parent and child, by child and then in order of first use."""
    parents: list[int] = []
    children: list[int] = []
    positions: list[tuple[str, ...]] = []
    for child, used in enumerate(reader.lineage.parents):
        filled: dict[int, list[str]] = {}
        for position, parent in used:
            filled.setdefault(parent, []).append(position)
        parents += filled
        children += [child] * len(filled)
        positions += map(tuple, filled.values())
    cells: dict[str, Cells] = {
        "parent": Coded(parents, reader.op_labels),
        "child": Coded(children, reader.op_labels),
        "parent_index": parents,
        "child_index": children,
        "positions": coded(positions),
        "host": [HOST in at for at in positions],
    }
    return build(COLUMNS, cells, metadata_of(reader.record, "edges"))
