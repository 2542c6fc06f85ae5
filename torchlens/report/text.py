"""What every printed thing of a trace has: plain text, HTML, and facts in two columns."""

from __future__ import annotations

import io
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

_HTML: Final = (
    '<pre style="white-space:pre;overflow-x:auto;line-height:normal;'
    "font-family:Menlo,'DejaVu Sans Mono',consolas,'Courier New',monospace\">{code}</pre>"
)
_HTML_WIDTH: Final = 110
_STYLES: Final = {"raised": "bold red", "note": "yellow"}


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


class Printable(ABC):
    """A rich renderable that prints as plain text too, as wide as the terminal, and as HTML in notebooks."""

    @abstractmethod
    def parts(self, width: int, symbols: Symbols) -> Iterable[RenderableType]:
        """What it consists of, from the top, at most `width` cells wide."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.parts(options.max_width, ASCII if options.ascii_only else UNICODE)

    def __str__(self) -> str:
        return as_text(self)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return as_html(self)


def fact_grid(facts: Iterable[tuple[str, str]], symbols: Symbols, names: int = 10) -> Table:
    """Names and texts side by side; an empty name continues the one above. `names`: their width."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=names, no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for name, text in facts:
        grid.add_row(Text(name, style=_STYLES.get(name, "")), Text(symbols.put(text)))
    return grid


class _Buffer(io.StringIO):
    """Text in memory that says which characters it takes."""

    encoding = "utf-8"


def as_text(renderable: RenderableType, width: int | None = None, *, encoding: str = "utf-8") -> str:
    """Plain text without escape codes and without trailing spaces.

    Without a width it is as wide as the terminal, 80 columns if there is none. With an encoding other than
    a Unicode one, lines and signs are drawn in ASCII.
    """
    file = _Buffer()
    file.encoding = encoding
    width = width or shutil.get_terminal_size((80, 24)).columns
    console = Console(file=file, width=width, color_system=None, force_terminal=False, force_jupyter=False)
    console.print(renderable)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def as_html(renderable: RenderableType) -> str:
    """A `<pre>` element with inline styles, for notebooks."""
    console = Console(
        file=io.StringIO(), width=_HTML_WIDTH, record=True, force_terminal=True, force_jupyter=False
    )
    console.print(renderable)
    return console.export_html(inline_styles=True, code_format=_HTML)
