"""An SVG picture as PDF. The only file that imports typst, when a PDF is asked for."""

from __future__ import annotations

import re
import warnings
from typing import Final

from torchlens.errors import MissingLibraryError

_DOCUMENT: Final = b"""
#set document(date: none)
#set page(width: auto, height: auto, margin: 0pt)
#image(bytes(sys.inputs.svg), format: "svg", width: float(sys.inputs.width) * 1pt)
"""
_LONGEST_SIDE: Final = 14_400.0  # points; a page may be no longer (ISO 32000-1, annex C)
_ARCHIVED: Final = "a-2b"  # of the standards, one that forbids letters no font has and allows transparency

# Graphviz measures text by Helvetica, Times and Courier. Where they are missing, fonts of the same widths.
_SANS: Final = "Arial,Liberation Sans,Arimo,Nimbus Sans,DejaVu Sans,Noto Sans"
_SERIF: Final = "Times New Roman,Liberation Serif,Tinos,Nimbus Roman,DejaVu Serif,Noto Serif"
_MONOSPACE: Final = "Courier New,Liberation Mono,Cousine,Nimbus Mono PS,DejaVu Sans Mono"


def pdf_of(svg: str) -> bytes:
    """The picture as a PDF of one page, with its fonts inside; the same bytes from the same SVG and fonts.

    A picture longer than a page may be, 14,400 points, is scaled down. Letters that no font of the machine
    has become boxes, and a warning names them. Raises typst's error, a `RuntimeError`, where the SVG is none.
    """
    try:
        import typst
    except ImportError as error:
        raise MissingLibraryError(
            'a PDF needs typst, which is not installed: pip install typst; program="dot" of an installed '
            "Graphviz, .svg and .png work without it"
        ) from error

    inputs = {"svg": _with_spare_fonts(svg), "width": str(_width_on_page(svg))}
    try:
        return typst.compile(_DOCUMENT, format="pdf", sys_inputs=inputs, pdf_standards=_ARCHIVED)
    except typst.TypstError as error:
        picture = typst.compile(_DOCUMENT, format="pdf", sys_inputs=inputs)
        _warn(error.diagnostic)
        return picture


def _warn(diagnostic: str) -> None:
    missing = re.findall(r'the text `"(.+?)"` could not be displayed', diagnostic)
    if missing:
        letters = "".join(dict.fromkeys(missing))
        warnings.warn(
            f"the PDF has boxes in place of {letters}: no font of this machine has them; "
            "install one that has, or write .svg, which takes the reader's fonts",
            stacklevel=4,
        )


def _width_on_page(svg: str) -> float:
    found = re.search(r'<svg width="([\d.]+)pt" height="([\d.]+)pt"', svg)
    if found is None:
        return _LONGEST_SIDE
    width, height = map(float, found.groups())
    return width * min(1.0, _LONGEST_SIDE / max(width, height))


def _with_spare_fonts(svg: str) -> str:
    def extended(found: re.Match[str]) -> str:
        families = found[1].lower()
        if "mono" in families or "courier" in families:
            spare = _MONOSPACE
        else:
            spare = _SANS if "sans" in families else _SERIF
        return f'font-family="{found[1]},{spare}"'

    return re.sub(r'font-family="([^"]*)"', extended, svg)
