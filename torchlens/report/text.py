"""Rich renderables as plain text and as HTML."""

from __future__ import annotations

import io
import shutil

from rich.console import Console, RenderableType

_HTML = (
    '<pre style="white-space:pre;overflow-x:auto;line-height:normal;'
    "font-family:Menlo,'DejaVu Sans Mono',consolas,'Courier New',monospace\">{code}</pre>"
)
_HTML_WIDTH = 110


def as_text(renderable: RenderableType, width: int | None = None) -> str:
    """Plain text without escape codes; without a width as wide as the terminal, 80 columns if there is none."""
    width = width or shutil.get_terminal_size((80, 24)).columns
    file = io.StringIO()
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
