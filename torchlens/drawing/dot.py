"""A composition as DOT text. The only file that imports pydot, and only when a picture is drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from torchlens.drawing.captions import (
    Line,
    Style,
    amount_line,
    arrow_text,
    cluster_lines,
    node_lines,
    shortened,
    tooltip,
)
from torchlens.drawing.coloring import Coloring, Paint
from torchlens.drawing.composition import Arrow, Cluster, Composition, Node
from torchlens.drawing.scene import Leaf, Scene, Status

if TYPE_CHECKING:
    import pydot

Direction: TypeAlias = Literal["down", "right", "up", "left"]
RANKDIR: Final[dict[Direction, str]] = {"down": "TB", "right": "LR", "up": "BT", "left": "RL"}

_FONT: Final = "Helvetica"
_QUIET: Final = "#5f6b78"
_TINTS: Final = ("#f7f9fc", "#eef2f8")
"""Of open modules, by turns."""
_TITLE_CHARACTER: Final = 6.5
"""Points that a character of a title is wide, about."""
_ROOM: Final = 1.5
"""How much wider than a title the room beside it is."""
_STATUS: Final[dict[Status, str]] = {"both": _QUIET, "added": "#1f7a43", "removed": "#b3261e"}


@dataclass(frozen=True, slots=True)
class Look:
    """How a picture is drawn, apart from what is in it."""

    direction: Direction
    coloring: Coloring
    title: str
    notes: Sequence[str]


def write_dot(scene: Scene, composition: Composition, look: Look) -> str:
    """The DOT text of a composition: clusters for clusters, one node and edge for each node and arrow."""
    return _Writer(scene, composition, look).write()


class _Writer:
    def __init__(self, scene: Scene, composition: Composition, look: Look) -> None:
        import pydot

        self._pydot = pydot
        self._composition = composition
        self._look = look
        self._shown: dict[Node, list[Leaf]] = {}
        for leaf, node in zip(scene.leaves, composition.node_of):
            self._shown.setdefault(node, []).append(leaf)
        self._positions: dict[Leaf, set[str]] = {}
        """The argument positions of each leaf that links lead to."""
        for link in scene.links:
            self._positions.setdefault(link.target, set()).update(link.positions)
        self._entered = _entered_nodes(composition)

    def write(self) -> str:
        dot = self._pydot.Dot("torchlens", graph_type="digraph", **self._graph_attributes())
        dot.set_node_defaults(shape="box", style='"rounded,filled"', fontname=_FONT, fontsize="11")
        dot.set_edge_defaults(fontname=_FONT, fontsize="9", color=_QUIET, fontcolor=_QUIET, arrowsize="0.7")
        self._fill(dot, self._composition.top, 0)
        for arrow in self._composition.arrows:
            dot.add_edge(self._edge(arrow))
        return dot.to_string()

    def _graph_attributes(self) -> dict[str, str]:
        return {
            "rankdir": RANKDIR[self._look.direction],
            "label": f"<{_table(self._look)}>",
            "labelloc": "b",
            "labeljust": "l",
            "fontname": _FONT,
            "fontsize": "11",
            "nodesep": "0.25",
            "ranksep": "0.35",
            "bgcolor": quoted("#ffffff"),
        }

    def _fill(self, graph: pydot.Graph, cluster: Cluster, depth: int) -> None:
        for part in cluster.parts:
            if isinstance(part, Node):
                graph.add_node(self._node(part))
                continue
            drawn = self._cluster(part, depth)
            self._fill(drawn, part, depth + 1)
            graph.add_subgraph(drawn)  # pyright: ignore[reportArgumentType]  a cluster is a subgraph

    def _cluster(self, cluster: Cluster, depth: int) -> pydot.Cluster:
        status = cluster.boxes[0].status if cluster.boxes else None
        border = _STATUS[status] if status in ("added", "removed") else "#b4c0cd"
        address = cluster.boxes[0].label if cluster.boxes else ""
        at_right = (
            len(self._entered[cluster]) == 1
        )  # the layout puts chains at the left, and what bypasses at the right
        return self._pydot.Cluster(
            cluster.name,
            label=f"<{_title(cluster_lines(cluster), at_right)}>",
            labelloc="t",
            labeljust="r" if at_right else "l",
            style=quoted("rounded,filled" if cluster.boxes else "rounded,filled,dashed"),
            fillcolor=quoted(_TINTS[depth % 2]),
            color=quoted(border),
            fontname=_FONT,
            fontsize="11",
            margin="10",
            tooltip=_quoted_tooltip(address or cluster_lines(cluster)[0].text),
        )

    def _node(self, node: Node) -> pydot.Node:
        leaves = self._shown[node]
        coloring = self._look.coloring
        paint = coloring.paint(leaves, node.kind == "module")
        lines = node_lines(node)
        if amount := coloring.text(leaves):
            lines.insert(1, amount_line(amount))
        style = "rounded,filled"
        if node.kind == "rest":
            style += ",dashed"
        peripheries = "2" if node.times > 1 else "1"
        return self._pydot.Node(
            name=node.name,
            label=f"<{_html(lines, paint)}>",
            fillcolor=quoted(paint.fill),
            color=quoted(paint.border),
            style=quoted(style),
            tooltip=_quoted_tooltip(tooltip(node)),
            peripheries=peripheries,
        )

    def _edge(self, arrow: Arrow) -> pydot.Edge:
        """One that leads back is given to the layout turned round, so that it does not turn the ranks."""
        label = arrow_text(arrow, len(self._positions[arrow.links[0].target]))
        statuses: set[Status] = {link.status for link in arrow.links if link.status is not None}
        status: Status = statuses.pop() if len(statuses) == 1 else "both"
        attributes = {
            "label": quoted(f"  {label}"),
            "tooltip": _quoted_tooltip(label),
            "color": quoted(_STATUS[status]),
        }
        ends = arrow.source.name, arrow.target.name
        if arrow.returns or arrow.later:
            attributes["style"] = "dashed"
            if arrow.returns and ends[0] != ends[1]:
                attributes["dir"] = "back"
                ends = ends[::-1]
        elif any("host" in link.positions for link in arrow.links):
            attributes["style"] = "dotted"
        edge = self._pydot.Edge(src=ends[0], dst=ends[1])
        for name, value in attributes.items():
            edge.set(name, value)
        return edge


def _entered_nodes(composition: Composition) -> dict[Cluster, set[Node]]:
    """For each cluster the nodes in it that arrows from outside lead to."""
    clusters: dict[Node, list[Cluster]] = {}
    entered: dict[Cluster, set[Node]] = {}
    waiting = [(composition.top, [composition.top])]
    while waiting:
        cluster, path = waiting.pop()
        entered[cluster] = set()
        for part in cluster.parts:
            if isinstance(part, Node):
                clusters[part] = path
            else:
                waiting.append((part, [*path, part]))
    for arrow in composition.arrows:
        for cluster in clusters[arrow.target]:
            if cluster not in clusters[arrow.source]:
                entered[cluster].add(arrow.target)
    return entered


def quoted(text: str, backslash: str = r"\\") -> str:
    """A string of DOT that stands for exactly this text, in which programs expand entities and \\N."""
    inner = clean(text).replace("&", "&amp;").replace("\\", backslash)
    return '"' + inner.replace('"', r"\"").replace("\n", r"\n") + '"'


def _quoted_tooltip(text: str) -> str:
    """Programs expand what is in a tooltip twice."""
    return quoted(text, backslash=r"\\\\")


def clean(text: str) -> str:
    """The text with what neither XML nor a line of text can hold spelled out."""
    return "".join(each if _is_plain(each) else each.encode("unicode_escape").decode() for each in text)


def _is_plain(character: str) -> bool:
    code = ord(character)
    if character == "\n":
        return True
    return not (code < 32 or 127 <= code < 160 or 0xD800 <= code < 0xE000 or code in (0xFFFE, 0xFFFF))


def _html(lines: Sequence[Line], paint: Paint, newline: str = "<BR/>") -> str:
    return newline.join(" ".join(_styled(word, style, paint) for word, style in line.words) for line in lines)


def _styled(word: str, style: Style, paint: Paint) -> str:
    text = _escaped(word)
    color = paint.text if style in ("name", "plain") else paint.quiet
    if style == "name":
        return f'<FONT COLOR="{color}"><B>{text}</B></FONT>'
    return f'<FONT COLOR="{color}" POINT-SIZE="{9 if style == "small" else 10}">{text}</FONT>'


def _escaped(text: str) -> str:
    """A line of text in an HTML-like label, which may not be empty, and in which \\N stands for a name."""
    return escape(clean(text).replace("\n", "\\n")).replace("\\", "\\\\") or " "


def _title(lines: Sequence[Line], at_right: bool) -> str:
    """The title of a cluster, with room beside it for the arrow that enters the cluster at its middle."""
    side = "RIGHT" if at_right else "LEFT"
    text = _html(lines, Paint(_TINTS[0], _QUIET), f'<BR ALIGN="{side}"/>')
    width = round(max(len(line.text) for line in lines) * _TITLE_CHARACTER * _ROOM)
    cells = [f'<TD ALIGN="{side}" BALIGN="{side}">{text}</TD>', f'<TD WIDTH="{width}"></TD>']
    return (
        '<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="0">'
        f"<TR>{''.join(cells[::-1] if at_right else cells)}</TR></TABLE>"
    )


def _table(look: Look) -> str:
    """What stands below the picture: its title, what was left out of it, and the legend."""
    return "".join(
        ('<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="2" CELLPADDING="2">', *_rows(look), "</TABLE>")
    )


def _rows(look: Look) -> Iterator[str]:
    yield _row(f"<B>{_escaped(look.title)}</B>")
    for note in look.notes:
        yield _row(f'<FONT COLOR="{_QUIET}" POINT-SIZE="9">{_escaped(note)}</FONT>')
    swatches = look.coloring.legend()
    if swatches:
        cells = "".join(
            f'<TD BGCOLOR="{fill}" BORDER="1" COLOR="#9aa5b1" WIDTH="14"> </TD>'
            f'<TD ALIGN="LEFT"><FONT POINT-SIZE="9">{_escaped(shortened(text))}</FONT></TD>'
            for fill, text in swatches
        )
        title = f'<TD><FONT POINT-SIZE="9">{_escaped(look.coloring.title)}</FONT></TD>'
        yield _row(f'<TABLE BORDER="0" CELLSPACING="2"><TR>{title}{cells}</TR></TABLE>')


def _row(cell: str) -> str:
    return f'<TR><TD ALIGN="LEFT">{cell}</TD></TR>'
