"""What the doctor found, as rows and as a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from torchlens.report.doctor_subject import Status
from torchlens.report.text import Printable, Symbols

_ORDER: Final[tuple[Status, ...]] = ("refused", "limited", "not tested", "ok")
_STYLES: Final = {"refused": "bold red", "limited": "yellow", "not tested": "magenta", "ok": "green"}
_NAME_WIDTH: Final = 20


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that was looked at."""

    check: str
    """What was looked at: `torch`, `training mode`, `input devices`."""
    status: Status
    found: str
    """What there is; empty where nothing was found."""
    advice: str
    """What to do about it; empty where nothing need be done."""


@dataclass(frozen=True, repr=False)
class Diagnosis(Printable):
    """What is known about capturing a model here, without having run it. True when nothing is refused."""

    name: str
    """The model's class or function; `environment` without a model."""
    rows: tuple[Row, ...]

    def __bool__(self) -> bool:
        return not self.of("refused")

    def of(self, status: Status) -> Sequence[Row]:
        """The rows with one status: `ok`, `limited`, `refused` or `not tested`."""
        return [row for row in self.rows if row.status == status]

    @property
    def verdict(self) -> str:
        """The counts, in words."""
        counts = [f"{len(self.of('refused')) or 'nothing'} refused"]
        counts += [
            f"{len(self.of(status))} {status}" for status in ("limited", "not tested") if self.of(status)
        ]
        return ", ".join(counts)

    @property
    def clear(self) -> Sequence[str]:
        """The checks that found nothing."""
        return [row.check for row in self.rows if not row.found]

    def parts(self, width: int, symbols: Symbols) -> Iterator[RenderableType]:
        """The verdict, then what is not as it should be, then what is, then what was not found."""
        yield Text.assemble((self.name, "bold cyan"), symbols.put(f" · {self.verdict}"))
        for status in _ORDER:
            if rows := [row for row in self.of(status) if row.found]:
                yield ""
                yield Text(status, style=_STYLES[status])
                yield _grid(rows, symbols)
        if self.clear:
            yield ""
            yield Text(f"not found: {', '.join(self.clear)}", style="dim")

    def to_markdown(self) -> str:
        """The page as a Markdown table, for an issue."""
        lines = [f"### torchlens doctor: {self.name}", "", f"{self.verdict}.", ""]
        lines += ["| | check | found | what to do |", "|---|---|---|---|"]
        for row in (row for status in _ORDER for row in self.of(status) if row.found):
            lines.append(f"| {' | '.join(map(_cell, (row.status, row.check, row.found, row.advice)))} |")
        lines += ["", f"Not found: {', '.join(self.clear)}."] if self.clear else []
        return "\n".join(lines)


def _grid(rows: Sequence[Row], symbols: Symbols) -> Table:
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=_NAME_WIDTH, style="dim")
    grid.add_column()
    above = ""
    for row in rows:
        grid.add_row(f"  {row.check}" if row.check != above else "", Text(symbols.put(row.found)))
        if row.advice:
            grid.add_row("", Text(symbols.put(f"do: {row.advice}"), style="bold"))
        above = row.check
    return grid


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
