"""The rows of a tree as a table for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from torchlens.report.amounts import duration, short_count
from torchlens.report.rows import Row

_NAME: Final = "module, layer"
_LEAST_NAME: Final = 28
"""Columns are left out, the last first, before the tree gets narrower than this."""
_GAP: Final = 2


@dataclass(frozen=True)
class Symbols:
    """The characters that are not in ASCII, or what stands for them."""

    branch: str = "├ "
    last: str = "└ "
    bar: str = "│ "
    ellipsis: str = "…"
    times: str = "×"
    dot: str = "·"

    def put(self, text: str) -> str:
        """The text with the symbols exchanged."""
        return text.replace("…", self.ellipsis).replace("×", self.times).replace("·", self.dot)


ASCII: Final = Symbols("|-", "`-", "| ", "..", "x", "-")
UNICODE: Final = Symbols()


@dataclass(frozen=True)
class _Column:
    header: str
    cell: Callable[[Row], str]


_COLUMNS: Final = (
    _Column("output", lambda row: row.shape),
    _Column("params", lambda row: _params(row)),
    _Column("FLOPs", lambda row: _flops(row)),
    _Column("time", lambda row: duration(row.amounts.nanoseconds) if row.amounts.nanoseconds else ""),
)


def tree_table(top: Row, width: int, symbols: Symbols) -> Table:
    """The tree beside its figures, at most `width` cells wide."""
    rows = list(top.walk())
    figures = [[symbols.put(column.cell(row)) for column in _COLUMNS] for row in rows]
    widths = [max(map(cell_len, texts)) for texts in zip([c.header for c in _COLUMNS], *figures)]
    while widths and width - sum(widths) - _GAP * len(widths) < _LEAST_NAME:
        widths.pop()
    names = list(_names(top, width - sum(widths) - _GAP * len(widths), symbols))
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="dim")
    widest = max(line.cell_len for lines in names for line in lines)
    table.add_column(_NAME, width=max(widest, len(_NAME)), no_wrap=True)
    for column, fitting in zip(_COLUMNS, widths):
        justify = "left" if column.header == "output" else "right"
        table.add_column(column.header, width=fitting, no_wrap=True, justify=justify)
    for lines, texts in zip(names, figures):
        cells = [Text(text, style="dim" if text == "0" else "") for text in texts[: len(widths)]]
        table.add_row(lines[0], *cells)
        for line in lines[1:]:
            table.add_row(line)
    return table


def legend(rows: Sequence[Row]) -> Iterator[str]:
    """What the notation of these rows means."""
    if any("×" in row.runs for row in rows):
        yield "×n: n calls of a module, n passes of a layer" + (
            "; ×n/m: n of its m passes are here" if any("/" in row.runs for row in rows) else ""
        )
    if any("free" in row.note for row in rows):
        yield "free: layers that compute nothing, as views, copies and new tensors"
    if any(_params(row).startswith("(") for row in rows):
        yield "(n): parameters counted further up, being tied or shared"
    if any(row.amounts.uncounted for row in rows):
        yield "n+ and ?: some or all calls in it have no known FLOPs"


def _names(row: Row, room: int, symbols: Symbols, outer: str = "", guide: str = "") -> Iterator[list[Text]]:
    """For each row its name as one line, or as two where a module and its layer do not fit on one."""
    inner = outer + ("" if not guide else "  " if guide == symbols.last else symbols.bar)
    head, labels = Text(outer + guide, style="dim") + _module(row, symbols), _layer(row, symbols)
    if head.cell_len + labels.cell_len <= room or not row.type or not labels:
        yield [_cropped(head + labels, room, symbols)]
    else:
        below = Text(inner + (symbols.last if row.labels else "  "), style="dim")
        below += _layer(replace(row, type=""), symbols)
        yield [_cropped(head, room, symbols), _cropped(below, room, symbols)]
    for at, item in enumerate(row.items):
        yield from _names(item, room, symbols, inner, symbols.last if item is row.items[-1] else symbols.branch)


def _module(row: Row, symbols: Symbols) -> Text:
    name = Text(symbols.put(row.name), style="bold")
    return name + Text(f" {row.type}" if row.name else row.type, style="cyan" if row.name else "bold cyan")


def _layer(row: Row, symbols: Symbols) -> Text:
    text = Text()
    first = not (row.type or row.labels or row.runs)
    parts = (
        (symbols.put(" · ") if row.type and row.labels else "", "dim"),
        (row.labels, "green"),
        (f" {row.runs}" if row.runs else "", "yellow"),
        (row.note if first else f", {row.note}" if row.note else "", "bold red" if row.alert else "dim"),
    )
    for part, style in parts:
        text.append(symbols.put(part), style)
    return text


def _cropped(text: Text, room: int, symbols: Symbols) -> Text:
    if text.cell_len > room:
        text.truncate(room - cell_len(symbols.ellipsis))
        text.append(symbols.ellipsis, "dim")
    return text


def _params(row: Row) -> str:
    if row.amounts.params or not row.all_params:
        return short_count(row.amounts.params) if row.amounts.params else ""
    return f"({short_count(row.all_params)})"


def _flops(row: Row) -> str:
    flops, uncounted = row.amounts.flops, row.amounts.uncounted
    if uncounted and not flops:
        return "?"
    return short_count(flops) + ("+" if uncounted else "")
