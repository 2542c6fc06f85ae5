"""DOT text to pictures, and to the positions of what is in them."""

from __future__ import annotations

import json
import re
import warnings
from typing import Final, Literal, TypeAlias, TypedDict, cast, get_args

from torchlens.drawing.pdf import pdf_of
from torchlens.drawing.programs import Program, check_choice, failure, run
from torchlens.errors import DrawingError

Form: TypeAlias = Literal["svg", "png", "pdf"]

_SPACE: Final = re.compile(r"\s*")


class PlacedNode(TypedDict, total=False):
    """A node or a cluster of a laid-out graph; the other attributes of its DOT text stand beside these."""

    _gvid: int
    name: str
    id: str
    label: str
    pos: str  # of a node: "x,y", its middle
    width: str  # of a node, in inches
    height: str  # of a node, in inches
    bb: str  # of a cluster: "left,bottom,right,top"
    lp: str  # of a cluster: "x,y", its label's middle
    nodes: list[int]  # of a cluster: the `_gvid`s inside, those of inner clusters too
    subgraphs: list[int]  # of a cluster: the `_gvid`s of inner clusters


class PlacedEdge(TypedDict, total=False):
    """An edge of a laid-out graph; the other attributes of its DOT text stand beside these."""

    _gvid: int
    tail: int  # the `_gvid` of the node where it begins
    head: int
    id: str
    label: str
    pos: str  # "e,x,y x,y x,y ...": the arrow's tip, then points of Bézier curves
    lp: str  # "x,y", its label's middle


class PlacedGraph(TypedDict, total=False):
    """One graph as Graphviz's `json` has it; lengths are points (1/72 inch) unless said, y grows upwards."""

    name: str
    bb: str  # "left,bottom,right,top"
    objects: list[PlacedNode]  # clusters first
    edges: list[PlacedEdge]


def render(dot: str, form: Form, *, program: Program = "graphviz-pure", time_limit: float = 60.0) -> bytes:
    """The picture of a graph that is given as DOT text; the layout may take `time_limit` seconds.

    `graphviz-pure` comes with torchlens, `dot` with an installed Graphviz. graphviz-pure draws a PNG with
    fonts of its own, of Latin, Greek, Cyrillic and Hebrew letters: others become boxes, and a warning names
    them. Raises `DrawingError`, with the DOT text kept in a file, where the program is missing, fails or is
    too slow.

    >>> render("digraph { linear -> relu }", "svg").startswith(b"<?xml")
    True
    """
    check_choice("form", form, get_args(Form))
    if program == "dot" or form == "svg":
        return run(program, form, dot, time_limit=time_limit)
    if form == "png":
        picture = run(program, form, dot, time_limit=time_limit)
        _warn_of_boxes(dot)
        return picture
    svg = run(program, "svg", dot, time_limit=time_limit).decode()
    try:
        return pdf_of(svg)
    except RuntimeError as error:
        raise failure(dot, f"typst made no PDF of the picture: {error}", "Write .svg or .png") from error


def lay_out(dot: str, *, time_limit: float = 60.0) -> list[PlacedGraph]:
    """Where graphviz-pure places the nodes, clusters and edges of the graphs in the DOT text, in their order.

    One process lays out all graphs of the text, and `time_limit` is for all of them together. Each must begin
    on a line of its own: graphviz-pure drops what follows a graph on its last line. Raises as `render` does.

    >>> [graph["bb"] for graph in lay_out("digraph { a }" + chr(10) + "digraph { b -> c }")]
    ['0,0,54,36', '0,0,54,108']
    """
    output = run("graphviz-pure", "json", dot, time_limit=time_limit)
    try:
        return _documents(output.decode())
    except ValueError as error:
        raise _no_json(dot, output) from error


def _documents(text: str) -> list[PlacedGraph]:
    """The JSON objects of the text, one after the other; raises `ValueError` where there is anything else."""
    decoder = json.JSONDecoder()
    found: list[PlacedGraph] = []
    position = _past_space(text, 0)
    while position < len(text):
        document, position = cast("tuple[object, int]", decoder.raw_decode(text, position))
        if not isinstance(document, dict):
            raise ValueError(document)
        found.append(cast("PlacedGraph", document))
        position = _past_space(text, position)
    return found


def _past_space(text: str, position: int) -> int:
    found = _SPACE.match(text, position)
    return found.end() if found else position


def _no_json(dot: str, output: bytes) -> DrawingError:
    begins = output[:60].decode(errors="replace")
    remedy = "Install it anew: pip install --force-reinstall graphviz-pure"
    return failure(dot, f"graphviz-pure wrote something else than JSON, which begins {begins!r}", remedy)


# Blocks of Unicode in which graphviz-pure's fonts have the letters, or some of the signs.
_LETTERS_IN_FONTS: Final = (
    range(0x0530),
    range(0x0590, 0x0600),  # Hebrew
    range(
        0x1D00, 0x2700
    ),  # Latin and Greek with marks; then signs, of which only arrows and a few more are there
    range(0xFB00, 0xFB50),  # ligatures
    range(0xFFFD, 0xFFFE),
)


def _warn_of_boxes(dot: str) -> None:
    boxes = [
        sign for sign in dict.fromkeys(dot) if not any(ord(sign) in known for known in _LETTERS_IN_FONTS)
    ]
    if boxes:
        warnings.warn(
            f"the PNG has boxes in place of {''.join(boxes[:20])}, which graphviz-pure's fonts do not have: "
            "write .svg or .pdf, which take the machine's fonts",
            stacklevel=3,
        )
