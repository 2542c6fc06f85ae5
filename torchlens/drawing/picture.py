"""A drawn run: DOT text or a page, and the files and notebook pictures that are made of them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Final, TypeAlias

from torchlens.drawing.files import write_file
from torchlens.drawing.rendering import Form, Program, render
from torchlens.errors import OptionError
from torchlens.report.amounts import byte_count, quantity
from torchlens.storage.disk import path_of

PathLike: TypeAlias = str | os.PathLike[str]
FORMS: Final[dict[str, Form]] = {".svg": "svg", ".png": "png", ".pdf": "pdf"}
"""By the ending of a path."""
DOT_ENDINGS: Final = (".dot", ".gv")
PAGE_ENDINGS: Final = (".html", ".htm")
_NODE: Final = re.compile(r"^n\d+ \[", re.MULTILINE)
_ROOT: Final = re.compile(r"<svg\b([^>]*)>")
_ZOOM: Final = (
    ".torchlens-picture:not(:focus){max-width:100%;height:auto;cursor:zoom-in}"
    ".torchlens-picture:focus{max-width:none;cursor:zoom-out;outline:none}"
)
"""As wide as the page at most; in its own size while it has the focus, which a click gives it."""


@dataclass(frozen=True, repr=False)
class Picture:
    """A picture of a run. Notebooks show it; it holds text only, so it outlives the trace."""

    dot: str
    """What is drawn, in Graphviz's language."""
    program: Program = "graphviz-pure"
    """What places the nodes: `dot` is that of an installed Graphviz."""
    time_limit: float = 60.0
    """Seconds that it may take."""

    @cached_property
    def svg(self) -> str:
        """The picture as SVG."""
        return self._render("svg").decode()

    def save(self, path: PathLike) -> None:
        """Write the picture as the path's ending says: .svg, .png, .pdf, .dot or .gv.

        A file that is there is replaced, folders are made.
        """
        if asks_for_page(path):
            raise OptionError(
                f"{path_of(path).name!r} asks for a page, and this is a picture; give the path to draw(), or "
                f"one that ends in one of {', '.join((*FORMS, *DOT_ENDINGS))}"
            )
        place = path_of(path)
        form = FORMS.get(place.suffix.lower())
        if form is None:
            write_file(place, self.dot.encode())
        else:
            write_file(place, self.svg.encode() if form == "svg" else self._render(form))

    def _render(self, form: Form) -> bytes:
        return render(self.dot, form, program=self.program, time_limit=self.time_limit)

    def __repr__(self) -> str:
        return f"<Picture, {quantity(len(_NODE.findall(self.dot)), 'node')}>"

    def _repr_svg_(self) -> str:
        """The SVG element alone, as wide as what it stands in at most; in its own size after a click."""
        start = self.svg.index("<svg")
        opening = rf'<svg class="torchlens-picture" tabindex="0"\1><style>{_ZOOM}</style>'
        return _ROOT.sub(opening, self.svg[start:], count=1)

    def _repr_html_(self) -> str:
        """The same; a notebook that shows SVG as an image would take neither width nor click from it."""
        return f'<div style="overflow:auto">{self._repr_svg_()}</div>'


@dataclass(frozen=True, repr=False)
class Page:
    """An interactive page of a run, whole in itself. Notebooks show it; it outlives the trace."""

    html: str

    def save(self, path: PathLike) -> None:
        """Write the page to a path that ends in .html; a file that is there is replaced, folders are made."""
        if not asks_for_page(path):
            raise OptionError(
                f"{path_of(path).name!r} does not end in .html, and this is a page; give a path that does"
            )
        write_file(path_of(path), self.html.encode())

    def __repr__(self) -> str:
        return f"<Page, {byte_count(len(self.html.encode()))}>"

    def _repr_html_(self) -> str:
        """In a frame of its own, so that it and the notebook leave each other alone."""
        return f'<iframe srcdoc="{escape(self.html)}" style="width:100%;height:600px;border:0"></iframe>'


def asks_for_page(path: PathLike) -> bool:
    """Whether a path's ending is that of a page; `OptionError` if it is that of no picture either."""
    place = path_of(path)
    ending = place.suffix.lower()
    if ending not in (*FORMS, *DOT_ENDINGS, *PAGE_ENDINGS):
        endings = ", ".join((*FORMS, *DOT_ENDINGS, PAGE_ENDINGS[0]))
        raise OptionError(
            f"{place.name!r} ends in no form of a picture; give a path that ends in one of {endings}"
        )
    return ending in PAGE_ENDINGS
