"""SVG to PDF."""

from __future__ import annotations

import re
import sys
import warnings
import zlib
from pathlib import Path

import pytest

from torchlens.drawing import pdf
from torchlens.drawing.rendering import render
from torchlens.errors import DrawingError, MissingLibraryError

DOT = 'digraph { node [fontname="Helvetica"]; linear [label="linear_1 · 2×3 … Δλ"]; linear -> relu }'


def sizes_of(document: bytes) -> list[tuple[float, float]]:
    """The width and height of each page, in points."""
    parts = [document]
    for compressed in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", document, flags=re.DOTALL):
        try:
            parts.append(zlib.decompress(compressed))
        except zlib.error:
            continue
    boxes = re.findall(rb"/MediaBox\s*\[\s*0 0 ([\d.]+) ([\d.]+)\s*\]", b"\n".join(parts))
    return [(float(width), float(height)) for width, height in boxes]


def size_of_svg(svg: bytes) -> tuple[float, float]:
    width, height = re.search(rb'<svg width="([\d.]+)pt" height="([\d.]+)pt"', svg).groups()
    return float(width), float(height)


def test_a_pdf_is_one_page_of_the_svgs_size() -> None:
    document = render(DOT, "pdf")
    assert document.startswith(b"%PDF-")
    assert sizes_of(document) == [pytest.approx(size_of_svg(render(DOT, "svg")))]


def test_the_same_text_gives_the_same_bytes() -> None:
    assert render(DOT, "pdf") == render(DOT, "pdf")


def test_letters_that_fonts_have_need_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        render(DOT, "pdf")


def test_letters_that_no_font_has_are_named() -> None:
    private = "\U0010fffd\ue123"
    message = r"the PDF has boxes in place of \\u\{10fffd\}\\u\{e123\}: no font .* write \.svg"
    with pytest.warns(UserWarning, match=message):
        document = render(f'digraph {{ a [label="known {private}"] }}', "pdf")
    assert len(sizes_of(document)) == 1


def test_a_picture_longer_than_a_page_may_be_is_scaled_to_it() -> None:
    chain = " -> ".join(f"n{number}" for number in range(250))
    width, height = size_of_svg(render(f"digraph {{ {chain} }}", "svg"))
    assert height > 14_400
    ((scaled_width, scaled_height),) = sizes_of(render(f"digraph {{ {chain} }}", "pdf"))
    assert scaled_height == pytest.approx(14_400, rel=1e-3)
    assert scaled_width / scaled_height == pytest.approx(width / height, rel=1e-3)


@pytest.mark.parametrize(
    ("family", "spare"),
    [
        ("Helvetica,sans-Serif", "Arial"),
        ("Times,serif", "Liberation Serif"),
        ("Courier,monospace", "Liberation Mono"),
    ],
)
def test_fonts_that_a_machine_lacks_have_spares_of_the_same_kind(family: str, spare: str) -> None:
    changed = pdf._with_spare_fonts(f'<text font-family="{family}" x="1">a</text>')
    assert re.fullmatch(rf'<text font-family="{family},[\w ,]*{spare}[\w ,]*" x="1">a</text>', changed)


def test_without_typst_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "typst", None)
    with pytest.raises(MissingLibraryError, match=r"a PDF needs typst.*pip install typst; .*svg and \.png"):
        render(DOT, "pdf")


def test_what_typst_cannot_draw_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("torchlens.drawing.rendering.run", lambda *_, **__: b"<svg")
    with pytest.raises(
        DrawingError, match=r"typst made no PDF of the picture: .*The DOT text is in .*Write \.svg"
    ):
        render(DOT, "pdf")
