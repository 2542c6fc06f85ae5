"""What `torchlens compare` found, as a page and as data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from torchlens.cli.printing import Data
from torchlens.comparing.page import comparison_parts, divergence_parts
from torchlens.report.amounts import quantity
from torchlens.report.text import Printable, Symbols

if TYPE_CHECKING:
    from torchlens.comparing.comparison import Comparison
    from torchlens.comparing.divergence import Divergence


@dataclass(frozen=True, repr=False)
class Outcome(Printable):
    """Two runs op by op, where they part, and whether they count as the same."""

    comparison: Comparison
    divergence: Divergence | None
    tolerance: float | None
    """None for that of the dtypes."""
    only_values: bool
    """Ops that one run alone has are no difference."""

    @property
    def compared(self) -> int:
        """How many ops of both runs had values to compare."""
        return len(self.comparison.rows) - len(self.comparison.not_compared)

    @property
    def lone(self) -> int:
        """How many ops one run alone has."""
        return len(self.comparison.only_in_a) + len(self.comparison.only_in_b)

    @property
    def same(self) -> bool:
        """Whether no value is off by more than the tolerance, and both runs have the same ops."""
        return self.divergence is None and (self.only_values or not self.lone)

    @property
    def nothing_known(self) -> str | None:
        """Why nothing was found out: no value could be compared, and no other difference counts."""
        if not self.same or self.compared:
            return None
        if self.comparison.not_compared:
            return f"no value could be compared: {self.comparison.not_compared[0].reason}"
        return "no value could be compared: no op is in both runs" if self.lone else None

    def parts(self, width: int, symbols: Symbols) -> Iterator[RenderableType]:
        """The comparison, then the divergence, or that there is none; no reason is told twice."""
        yield from comparison_parts(self.comparison, width, symbols)
        yield ""
        if self.divergence is not None:
            yield from divergence_parts(self.divergence, width, symbols, reasons=False)
        else:
            known = self.nothing_known is None
            style = "yellow" if not known else "green" if self.same else "red"
            yield Text(self._verdict(), style=f"bold {style}")

    def _verdict(self) -> str:
        if self.nothing_known is not None:
            return self.nothing_known
        if not self.same:
            lone = quantity(self.lone, "op is", "ops are")
            return f"they differ: {lone} in one run only, which --values lets pass"
        if self.comparison.equal:
            return "they are the same, bit for bit"
        within = "of their dtypes" if self.tolerance is None else f"of {self.tolerance:g}"
        told = f"they are the same within the tolerance {within}: {quantity(self.compared, 'value')} compared"
        gone = len(self.comparison.not_compared)
        return f"{told}, {gone:,} not" if gone else told

    def data(self) -> dict[str, Data]:
        """The same for programs."""
        comparison = self.comparison
        return {
            "same": self.same,
            "compared": self.compared,
            "not_compared": len(comparison.not_compared),
            "only_in_a": comparison.only_in_a,
            "only_in_b": comparison.only_in_b,
            "first_divergence": None if self.divergence is None else _divergence(self.divergence),
            "ops": comparison.rows,
        }


def _divergence(found: Divergence) -> dict[str, Data]:
    return {
        "a": found.a,
        "b": found.b,
        "by": found.by,
        "tolerance": {"relative": found.tolerance.relative, "absolute": found.tolerance.absolute},
        "excess": found.excess,
        "inputs": found.inputs,
        "starts_here": found.inputs.starts_here,
        "before": {
            "agreeing": found.compared,
            "not_compared": [{"label": label, "reason": reason} for label, reason in found.not_compared],
            "only_in_a": found.only_in_a,
            "only_in_b": found.only_in_b,
        },
    }
