"""A comparison as text: counts, the rows that differ, and what stands in one run only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from torchlens.report.amounts import listed, quantity, shape_text
from torchlens.report.calls import where
from torchlens.report.source_lines import line_text
from torchlens.report.text import Symbols, fact_grid

if TYPE_CHECKING:
    from torchlens.comparing.comparison import ComparedOp, Comparison, LoneOp
    from torchlens.comparing.divergence import Divergence, NoDivergence, Side
    from torchlens.comparing.inputs import Inputs

_MOST_ROWS: Final = 24
_MOST_NAMES: Final = 8
_MOST_REASONS: Final = 5
_NAME: Final = "op that differs"
_HEADERS: Final = ("shape", "max abs", "max rel", "cosine", "by")
_LEAST_NAME: Final = 28
"""Columns are left out, the last first, before names get narrower than this."""
_GAP: Final = 2


def comparison_parts(comparison: Comparison, width: int, symbols: Symbols) -> Iterator[RenderableType]:
    """The page from the top, at most `width` cells wide."""
    verdict = ("equal", "bold green") if comparison else ("not equal", "bold red")
    a, b = comparison.names
    yield Text.assemble((f"{a}, {b}", "bold cyan"), symbols.put(" · "), verdict)
    yield _grid(_facts(comparison), width, symbols)
    if comparison.differing:
        yield ""
        yield _table(comparison.differing[:_MOST_ROWS], width, symbols)
        rest = len(comparison.differing) - _MOST_ROWS
        if rest > 0:
            yield Text(f"and {rest:,} more that differ; .differing lists them", style="dim")


def _facts(comparison: Comparison) -> Iterator[tuple[str, str]]:
    rows, differing, gone = comparison.rows, comparison.differing, comparison.not_compared
    equal = len(rows) - len(differing) - len(gone)
    yield "in both", f"{quantity(len(rows), 'op')}: {equal:,} equal, {len(differing):,} differ"
    by_order = sum(row.by == "order" for row in rows)
    if by_order:
        yield "aligned", f"{len(rows) - by_order:,} by place in the code, {by_order:,} by order"
    yield from _counted(
        "dtype", (f"{row.a.dtype} to {row.b.dtype}" for row in rows if row.a.dtype != row.b.dtype)
    )
    yield from _counted("not compared", (str(row.reason) for row in gone))
    for name, ops in zip(comparison.names, (comparison.only_in_a, comparison.only_in_b)):
        if ops:
            yield f"only in {name}", f"{len(ops):,}: {listed([_title(op) for op in ops], _MOST_NAMES)}"


def _title(op: LoneOp) -> str:
    return f"{op.label} in {op.module}" if op.module else op.label


def _counted(name: str, texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    counts = Counter(texts).most_common()
    for at, (text, count) in enumerate(counts[:_MOST_REASONS]):
        yield "" if at else name, f"{quantity(count, 'op')}: {text}"
    if len(counts) > _MOST_REASONS:
        yield "", f"and {sum(count for _, count in counts[_MOST_REASONS:]):,} more, for other reasons"


def _table(rows: Sequence[ComparedOp], width: int, symbols: Symbols) -> Table:
    """The rows with as many columns of figures as fit beside their names."""
    names = [_pair_title(row.a.label, row.b.label) for row in rows]
    figures = [[symbols.put(text) for text in _figures(row)] for row in rows]
    widths = [max(map(cell_len, texts)) for texts in zip(_HEADERS, *figures)]
    if all(row.by == "site" for row in rows):
        widths.pop()
    room = min(max(map(cell_len, (_NAME, *names))), _LEAST_NAME)
    while widths and room + sum(widths) + _GAP * len(widths) > width:
        widths.pop()
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="dim")
    table.add_column(_NAME, overflow="fold", style="green")
    for header, fitting in zip(_HEADERS, widths):
        justify = "left" if header in ("shape", "by") else "right"
        table.add_column(header, width=fitting, justify=justify, no_wrap=True)
    for name, texts in zip(names, figures):
        table.add_row(Text(name), *map(Text, texts[: len(widths)]))
    return table


def _grid(facts: Iterable[tuple[str, str]], width: int, symbols: Symbols) -> Table:
    """The facts beside their names, which take a third of the width at most: a name of a run may be long."""
    given = list(facts)
    return fact_grid(given, symbols, min(max(cell_len(name) for name, _ in given), width // 3))


def _pair_title(a: str, b: str) -> str:
    return a if a == b else f"{a} = {b}"


def _figures(row: ComparedOp) -> tuple[str, str, str, str, str]:
    found = row.difference
    if found is None:
        return shape_text(row.a.shape), "", "", "", row.by
    cosine = "" if found.cosine is None else f"{found.cosine:.6f}"
    return shape_text(row.a.shape), f"{found.max_abs:.2e}", f"{found.max_rel:.2e}", cosine, row.by


def divergence_parts(
    found: Divergence, width: int, symbols: Symbols, *, reasons: bool = True
) -> Iterator[RenderableType]:
    """The page of a divergence from the top; `reasons`: why values before it could not be compared."""
    a, b = found.names
    label = _pair_title(found.a.label, found.b.label)
    yield Text.assemble(
        (f"{a}, {b}", "bold cyan"), symbols.put(" · first divergence at "), (symbols.put(label), "bold red")
    )
    yield _grid(_divergence_facts(found, reasons=reasons), width, symbols)
    for name, side in zip(found.names, (found.a, found.b)):
        yield ""
        place = f" in {where(side.module, side.module_type)}"
        yield Text.assemble((name, "bold"), symbols.put(" · "), (side.label, "green"), place)
        facts = [("value", _value(side))]
        facts += [("" if at else "called at", line_text(line)) for at, line in enumerate(side.call_site)]
        yield _grid(facts, width, symbols)


def _value(side: Side) -> str:
    """What a value looks like, and of its finite elements the range and moments."""
    text = f"{shape_text(side.shape)} {side.dtype}"
    found = side.statistics
    if found is None:
        return f"{text}; {side.statistics_reason}"
    text += "" if found.of == "elements" else f", {found.of}"
    named = (("min", found.minimum), ("max", found.maximum), ("mean", found.mean), ("std", found.std))
    text += "".join(f", {name} {value:.4g}" for name, value in named if value is not None)
    text += f", {found.nan:,} NaN" if found.nan else ""
    return text + (f", {found.infinite:,} Inf" if found.infinite else "")


def no_divergence_parts(found: NoDivergence, width: int, symbols: Symbols) -> Iterator[RenderableType]:
    """The page where there is none."""
    a, b = found.names
    verdict = f"no divergence among {quantity(found.compared, 'compared value')}"
    if found.not_compared:
        verdict += f" ({len(found.not_compared):,} could not be compared)"
    style = "bold green" if found.compared else "bold yellow"
    yield Text.assemble((f"{a}, {b}", "bold cyan"), symbols.put(" · "), (verdict, style))
    facts = [*_counted("not compared", (reason for _, reason in found.not_compared)), *_lone(found)]
    if facts:
        yield _grid(facts, width, symbols)


def _divergence_facts(found: Divergence, *, reasons: bool) -> Iterator[tuple[str, str]]:
    excess = found.excess
    if excess is None:
        shapes = shape_text(found.a.shape), shape_text(found.b.shape)
        yield "differs", f"the shapes are {shapes[0]} and {shapes[1]}"
    else:
        yield (
            "differs",
            f"{excess.count:,} of {quantity(excess.of, 'element')}, by more than {found.tolerance}",
        )
        yield "worst", f"at {list(excess.index)}: {excess.a:.8g} and {excess.b:.8g}"
    if found.by == "order":
        yield "aligned", "by the order of operations: its place in the code is another"
    gone = f", {len(found.not_compared):,} could not be compared" if found.not_compared else ""
    yield "before it", quantity(found.compared, "value agrees", "values agree") + gone
    if reasons:
        yield from _counted("not compared", (reason for _, reason in found.not_compared))
    yield from _lone(found)
    yield from _inputs_told(found.inputs)


def _inputs_told(inputs: Inputs) -> Iterator[tuple[str, str]]:
    parents = listed(inputs.parents_a, _MOST_NAMES)
    match inputs.ops:
        case "none":
            yield "inputs", "it reads no other op"
        case "agree":
            yield "inputs", f"they agree: {parents}"
        case "not known":
            yield "inputs", f"not all were compared: {parents}"
        case "differ":
            others = listed(inputs.parents_b, _MOST_NAMES)
            yield "inputs", f"they are other ops: {parents or 'none'}; {others or 'none'}"
    match inputs.params:
        case "agree":
            yield "parameters", "they agree"
        case "shared":
            yield "parameters", "the same tensors in both, which traces hold by reference"
        case "differ":
            yield "parameters", f"they differ: {listed(inputs.differing_params, _MOST_NAMES)}"
        case "not known":
            yield "parameters", f"they could not be compared: {inputs.params_reason}"
        case "none":
            pass
    if inputs.arguments is not None:
        yield "arguments", f"they differ: ({inputs.arguments[0]}) and ({inputs.arguments[1]})"
    if inputs.starts_here:
        yield "so", "the difference starts here"


def _lone(found: Divergence | NoDivergence) -> Iterator[tuple[str, str]]:
    for name, labels in zip(found.names, (found.only_in_a, found.only_in_b)):
        if labels:
            yield f"only in {name}", f"{len(labels):,}: {listed(labels, _MOST_NAMES)}"
