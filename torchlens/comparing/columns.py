"""A comparison as an Arrow table, with the meaning of each column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from torchlens._arrow import Column, build
from torchlens.comparing.differences import Difference

if TYPE_CHECKING:
    import pyarrow as pa

    from torchlens.comparing.comparison import Comparison, LoneOp

Cell: TypeAlias = str | int | float | tuple[int, ...] | None

COLUMNS: Final = (
    Column("status", "category", "equal, differs, not compared, only in a, only in b"),
    Column("by", "category", "how the op was aligned, site or order; null in one run only", nullable=True),
    Column("label_a", "string", "the op in the first run; null where it is not in it", nullable=True),
    Column("label_b", "string", "the op in the second run", nullable=True),
    Column("module_a", "category", "address of the module it ran in", nullable=True),
    Column("module_b", "category", "address of the module it ran in", nullable=True),
    Column("type_a", "category", "the operation's name in labels", nullable=True),
    Column("type_b", "category", "the operation's name in labels", nullable=True),
    Column("shape_a", "list<int64>", "null for a nested tensor", nullable=True),
    Column("shape_b", "list<int64>", "null for a nested tensor", nullable=True),
    Column("dtype_a", "category", "dtype without torch.", nullable=True),
    Column("dtype_b", "category", "dtype without torch.", nullable=True),
    Column("unequal", "int64", "elements that differ; null where not compared", nullable=True),
    Column("max_abs", "float64", "largest |a - b|", nullable=True),
    Column("mean_abs", "float64", "mean |a - b|", nullable=True),
    Column("max_rel", "float64", "largest |a - b| / max(|a|, |b|)", nullable=True),
    Column("mean_rel", "float64", "mean |a - b| / max(|a|, |b|)", nullable=True),
    Column("cosine", "float64", "cosine of the flattened values; null where not defined", nullable=True),
    Column("reason", "string", "why the values were not compared", nullable=True),
)


def comparison_table(comparison: Comparison) -> pa.Table:
    """One row for each op of both runs, then those of the first only, then those of the second only."""
    rows, only_a, only_b = comparison.rows, comparison.only_in_a, comparison.only_in_b
    gone_a, gone_b = [None] * len(only_a), [None] * len(only_b)
    ours = [*(row.a for row in rows), *only_a, *gone_b]
    theirs = [*(row.b for row in rows), *gone_a, *only_b]
    found = [*(row.difference for row in rows), *gone_a, *gone_b]
    statuses = {True: "equal", False: "differs", None: "not compared"}
    values: dict[str, list[Cell]] = {
        "status": [
            *(statuses[row.equal] for row in rows),
            *["only in a"] * len(only_a),
            *["only in b"] * len(only_b),
        ],
        "by": [*(row.by for row in rows), *gone_a, *gone_b],
        "reason": [*(row.reason for row in rows), *gone_a, *gone_b],
        **_of_ops("a", ours),
        **_of_ops("b", theirs),
        **_of_values(found),
    }
    a, b = comparison.names
    return build(COLUMNS, values, {"torchlens.table": "comparison", "a": a, "b": b})


def _of_ops(run: str, ops: Sequence[LoneOp | None]) -> dict[str, list[Cell]]:
    return {
        f"label_{run}": [op and op.label for op in ops],
        f"module_{run}": [op and op.module for op in ops],
        f"type_{run}": [op and op.type for op in ops],
        f"shape_{run}": [op and op.shape for op in ops],
        f"dtype_{run}": [op and op.dtype for op in ops],
    }


def _of_values(differences: Sequence[Difference | None]) -> dict[str, list[Cell]]:
    return {
        "unequal": [found and found.unequal for found in differences],
        "max_abs": [found and found.max_abs for found in differences],
        "mean_abs": [found and found.mean_abs for found in differences],
        "max_rel": [found and found.max_rel for found in differences],
        "mean_rel": [found and found.mean_rel for found in differences],
        "cosine": [found and found.cosine for found in differences],
    }
