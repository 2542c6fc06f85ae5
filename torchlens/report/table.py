"""The rows of a tree as a table for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from torchlens.report.amounts import duration, short_count
from torchlens.report.rows import Row
from torchlens.report.text import Symbols

_HEADERS: Final = ("output", "params", "FLOPs", "time")
_NAME: Final = "module, layer"
_LEAST_NAME: Final = 28
"""Columns are left out, the last first, before the tree gets narrower than this."""
_GAP: Final = 2


def tree_table(top: Row, width: int, symbols: Symbols) -> Table:
    """The tree beside its figures, at most `width` cells wide."""
    rows = list(top.walk())
    figures = [list(map(symbols.put, _figures(row))) for row in rows]
    widths = [max(map(cell_len, texts)) for texts in zip(_HEADERS, *figures, strict=True)]
    while widths and width - sum(widths) - _GAP * len(widths) < _LEAST_NAME:
        widths.pop()
    names = list(_names(top, width - sum(widths) - _GAP * len(widths), symbols))
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="dim")
    widest = max(line.cell_len for lines in names for line in lines)
    table.add_column(_NAME, width=max(widest, len(_NAME)), no_wrap=True)
    for header, fitting in zip(_HEADERS, widths, strict=False):
        justify = "left" if header == "output" else "right"
        table.add_column(header, width=fitting, no_wrap=True, justify=justify)
    for lines, texts in zip(names, figures, strict=True):
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
    for item in row.items:
        yield from _names(
            item, room, symbols, inner, symbols.last if item is row.items[-1] else symbols.branch
        )


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


def _figures(row: Row) -> tuple[str, str, str, str]:
    took = row.amounts.nanoseconds
    return row.shape, _params(row), _flops(row), duration(took) if took else ""


def _params(row: Row) -> str:
    if row.amounts.params or not row.all_params:
        return short_count(row.amounts.params) if row.amounts.params else ""
    return f"({short_count(row.all_params)})"


def _flops(row: Row) -> str:
    flops, uncounted = row.amounts.flops, row.amounts.uncounted
    if uncounted and not flops:
        return "?"
    return short_count(flops) + ("+" if uncounted else "")
