"""The summary of a trace, for terminals, files and notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from torchlens._trace.views import Views
from torchlens.report.folding import fold_tree
from torchlens.report.overview import Overview, survey
from torchlens.report.rows import Row
from torchlens.report.table import legend, tree_table
from torchlens.report.text import UNICODE, Printable, Symbols, as_text, fact_grid
from torchlens.report.tree import Entry, build_tree


@dataclass(frozen=True, repr=False)
class Summary(Printable):
    """A trace at a glance: how it ended, the module tree with its layers, what it cost.

    A rich renderable; `print` gives plain text as wide as the terminal, 80 columns without one. Holds text
    and numbers only, so it outlives the trace.
    """

    overview: Overview
    tree: Entry
    depth: int | None = None
    """To how many modules below the root the tree is opened; None: as many as are readable."""
    fold: bool = True
    """Whether like siblings, and layers that compute nothing, share a row."""

    def parts(self, width: int, symbols: Symbols) -> Iterator[RenderableType]:
        """Title, inputs and outputs, tree, totals, and what the signs mean."""
        top, depth = fold_tree(self.tree, fold=self.fold, depth=self.depth)
        yield _title(self.overview, symbols)
        if self.overview.failure is not None:
            yield from self.overview.failure.parts(width, symbols)
            yield ""
        if ends := list(_ends(self.overview)):
            yield fact_grid(ends, symbols)
            yield ""
        yield tree_table(top, width, symbols)
        yield ""
        yield fact_grid(self.overview.totals, symbols)
        foot = list(_foot(top, depth))
        yield from [""] * bool(foot)
        yield from (Text(symbols.put(line), style="dim") for line in foot)


def summarize(views: Views, *, depth: int | None = None, fold: bool = True) -> Summary:
    """The summary of a trace.

    `depth` opens the tree to so many modules below the root; `fold=False` gives every layer a row.
    """
    return Summary(survey(views.reader), build_tree(views.reader), depth, fold)


def describe(views: Views) -> str:
    """A few lines about a trace, plain text."""
    overview = survey(views.reader)
    facts = [*_ends(overview), *(total for total in overview.totals if total[0] in _DESCRIBED)]
    last = Text("trace.summary() shows its modules and layers")
    failure = [] if overview.failure is None else [overview.failure, ""]
    return as_text(Group(_title(overview, UNICODE), *failure, fact_grid(facts, UNICODE), last))


_DESCRIBED = ("ops", "parameters", "FLOPs", "values")


def _title(overview: Overview, symbols: Symbols) -> Text:
    return Text.assemble((overview.title, "bold cyan"), symbols.put(f" · {overview.status}"))


def _ends(overview: Overview) -> Iterator[tuple[str, str]]:
    yield from (("note", line) for line in overview.warnings)
    yield from _first_of("input", overview.inputs)
    yield from _first_of("output", overview.outputs)


def _first_of(name: str, lines: Sequence[str], most: int = 6) -> Iterator[tuple[str, str]]:
    for at, line in enumerate(lines[:most]):
        yield "" if at else name, line
    if len(lines) > most:
        yield "", f"and {len(lines) - most} more"


def _foot(top: Row, depth: int | None) -> Iterator[str]:
    rows = list(top.walk())
    yield from legend(rows)
    if depth is not None and any(row.hides for row in rows):
        yield f"opened to depth {depth}: trace.summary(depth={depth + 1}) or --depth {depth + 1} opens more"
    elif any(row.hides for row in rows):
        yield "folded: trace.summary(fold=False) or --full gives every layer its row"
