"""`compare`: two runs op by op, as rows of numbers and text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import RenderableType

from torchlens._trace.views import Views
from torchlens._values.geometry import dtype_name
from torchlens.comparing.alignment import By, align
from torchlens.comparing.columns import comparison_table
from torchlens.comparing.differences import Difference, IncomparableError, measure
from torchlens.comparing.page import comparison_parts
from torchlens.comparing.reading import RAW, read_pair
from torchlens.report.sizes import shape_of
from torchlens.report.text import Printable, Symbols

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class LoneOp:
    """An op as it stands in one run."""

    label: str
    module: str
    """Address of the module it ran in; `""` for the root and outside any."""
    type: str
    shape: tuple[int, ...] | None
    """None for a nested tensor."""
    dtype: str


@dataclass(frozen=True, slots=True)
class ComparedOp:
    """An op of both runs and how far its values are apart."""

    a: LoneOp
    b: LoneOp
    by: By
    """How it was aligned: by its place in the code, or by the order of operations."""
    difference: Difference | None
    """None where the values could not be compared."""
    reason: str | None
    """Why they could not."""

    @property
    def equal(self) -> bool | None:
        """Whether both values are equal bit for bit and of one dtype; None if that cannot be told."""
        return None if self.difference is None else self.difference.equal


@dataclass(frozen=True, repr=False)
class Comparison(Printable):
    """Two runs side by side: a row for each op of both, and the ops of one run only.

    True when the runs agree: each op is in both, each value could be compared, and all are equal bit for bit.
    Memory that nothing has written yet, as `torch.empty` gives it, is no value and counts for neither.
    A rich renderable that also prints as text; it holds numbers and text only, so it outlives the traces.
    """

    names: tuple[str, str]
    rows: Sequence[ComparedOp]
    """In the capture order of the first run."""
    only_in_a: Sequence[LoneOp]
    only_in_b: Sequence[LoneOp]

    @property
    def equal(self) -> bool:
        """Whether the runs agree, as the truth of the comparison itself."""
        return (
            not self.only_in_a
            and not self.only_in_b
            and all(row.equal or row.reason == RAW for row in self.rows)
        )

    @property
    def differing(self) -> Sequence[ComparedOp]:
        """The rows whose values were compared and are not equal."""
        return [row for row in self.rows if row.equal is False]

    @property
    def not_compared(self) -> Sequence[ComparedOp]:
        """The rows whose values could not be compared, each with its reason."""
        return [row for row in self.rows if row.difference is None]

    def to_arrow(self) -> pa.Table:
        """The rows as a table, those of one run only at its end; its fields say what they mean."""
        return comparison_table(self)

    def parts(self, width: int, symbols: Symbols) -> Iterator[RenderableType]:
        """The counts, the rows that differ, what could not be compared, what is in one run only."""
        return comparison_parts(self, width, symbols)

    def __bool__(self) -> bool:
        return self.equal

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[ComparedOp]:
        return iter(self.rows)


def compare(a: Views, b: Views, names: tuple[str, str] = ("a", "b")) -> Comparison:
    """Align two runs and measure how far the values of each op of both are apart, one pair at a time."""
    found = align(a, b)
    rows: list[ComparedOp] = []
    for pair in found.pairs:
        difference, reason = measure_pair(a, b, pair.a, pair.b, names)
        rows.append(ComparedOp(_op(a, pair.a), _op(b, pair.b), pair.by, difference, reason))
    return Comparison(names, rows, [_op(a, at) for at in found.only_a], [_op(b, at) for at in found.only_b])


def measure_pair(
    a: Views, b: Views, ours: int, theirs: int, names: tuple[str, str]
) -> tuple[Difference | None, str | None]:
    """How far the values of an op of each run are apart, or why that cannot be told."""
    values = read_pair(a, b, ours, theirs, names)
    if isinstance(values, str):
        return None, values
    try:
        return measure(*values), None
    except IncomparableError as error:
        return None, str(error)


def _op(views: Views, at: int) -> LoneOp:
    op = views.op(at)
    return LoneOp(op.label, op.module.address, op.type, shape_of(op._seen), dtype_name(op.dtype))
