"""What `validate` and `check` hand back: counts, failures, what could not be checked and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from torchlens.report.amounts import quantity
from torchlens.report.text import Printable, Symbols, fact_grid
from torchlens.validation.findings import Finding, Tally

_MOST: Final = 8


@dataclass(frozen=True, repr=False)
class Report(Printable):
    """The result of checking a trace. True when nothing that could be checked failed.

    `sections` holds a tally for each sort of check: `record`, `values`, and of `validate` also `witness` and
    `forward`.
    """

    name: str
    """The model's class or function."""
    sections: Mapping[str, Tally]
    unverified: str | None
    """Why the trace cannot vouch for its graph, as a name; None when it can."""

    def __bool__(self) -> bool:
        return not self.failed

    @property
    def checked(self) -> int:
        """How many things were checked and held."""
        return sum(tally.checked for tally in self.sections.values())

    @property
    def failed(self) -> Sequence[Finding]:
        """What does not hold, by label."""
        return [finding for tally in self.sections.values() for finding in tally.failed]

    @property
    def unchecked(self) -> Sequence[Finding]:
        """What could not be checked, each with the reason."""
        return [finding for tally in self.sections.values() for finding in tally.unchecked]

    @property
    def advice(self) -> Sequence[Finding]:
        """What is worth a look: ops that did not move when a parent did. Most of these are right."""
        return [finding for tally in self.sections.values() for finding in tally.advice]

    def parts(self, width: int, symbols: Symbols) -> Iterator[RenderableType]:
        """The verdict, the counts, then what failed, what was not checked, and advice."""
        verdict = ("holds", "bold green") if self else ("FAILS", "bold red")
        yield Text.assemble((self.name, "bold"), symbols.put(" · "), verdict)
        yield _counts(self.sections)
        if self.unverified is not None:
            yield Text(f"The trace is unverified ({self.unverified}): its graph may lack edges.", "yellow")
        yield from _listed("failed", self.failed, symbols)
        yield from _grouped("unchecked", self.unchecked, symbols)
        yield from _listed("advice", self.advice, symbols)


def _counts(sections: Mapping[str, Tally]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("", "held", "failed", "unchecked"):
        table.add_column(name, justify="right" if name else "left")
    for name, tally in sections.items():
        counts = (tally.checked, len(tally.failed), len(tally.unchecked))
        table.add_row(name, *map(str, counts), style="red" if tally.failed else "")
    return table


def _listed(name: str, findings: Sequence[Finding], symbols: Symbols) -> Iterator[RenderableType]:
    facts = [("" if at else name, f"{f.about}: {f.text}") for at, f in enumerate(findings[:_MOST])]
    if len(findings) > _MOST:
        facts.append(("", f"and {len(findings) - _MOST} more"))
    if facts:
        yield fact_grid(facts, symbols)


def _grouped(name: str, findings: Sequence[Finding], symbols: Symbols) -> Iterator[RenderableType]:
    """Findings by their reason: many ops share one."""
    by_reason: dict[str, list[Finding]] = {}
    for finding in findings:
        by_reason.setdefault(finding.reason or finding.text, []).append(finding)
    merged = [
        found[0]
        if len(found) == 1
        else Finding(f"{found[0].about} and {quantity(len(found) - 1, 'other')}", reason)
        for reason, found in by_reason.items()
    ]
    yield from _listed(name, merged, symbols)
