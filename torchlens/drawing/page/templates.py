"""The layouts of insides: computed once for all boxes that are alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from torchlens.drawing.page.borders import End, Inside
from torchlens.drawing.rendering import PlacedGraph, lay_out

Size: TypeAlias = tuple[int, int]

SLOT: Final = 60
"""The height that each item is given: all of a rank are level, so that nothing stands between ranks."""
RANK_GAP: Final = 30
_DOT: Final = 8
"""Width of an entry or exit."""
_MOST_ABREAST: Final = 8
"""Items that nothing connects stand in rows of this many."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a layout is computed from; boxes with equal plans share it."""

    sizes: tuple[Size, ...]
    starts: tuple[int, ...]
    """For each item the first output of its call; itself where it is no op of several outputs."""
    num_entries: int
    num_exits: int
    edges: tuple[tuple[End, End, bool], ...]
    """With whether each goes forward to a later pass."""


@dataclass(frozen=True, slots=True)
class Template:
    """A layout, in whole pixels from the upper left."""

    size: Size
    items: list[tuple[int, int, int, int]]
    """Left, top, width, height."""
    entries: list[int]
    """Where they stand on the upper border, from the left."""
    exits: list[int]
    edges: list[Edge]


@dataclass(frozen=True, slots=True)
class Edge:
    """A curve between two ends; `back` if it goes to what began to run no later, `later` as in `Inside`."""

    start: int
    """Number of the item; entries are counted on from the items, and exits from these."""
    end: int
    back: bool
    later: bool
    points: list[int]
    """x and y in turn: of a cubic Bézier spline, in the direction of the layout (down)."""


def plan_of(inside: Inside, sizes: Iterable[Size], starts: Iterable[int]) -> Plan:
    """What a box's layout depends on."""
    counts = len(inside.entries), len(inside.exits)
    return Plan(tuple(sizes), tuple(starts), *counts, tuple(inside.edges))


def templates_of(plans: Sequence[Plan], time_limit: float = 60.0) -> list[Template]:
    """The layouts of some plans, which may take so many seconds together."""
    if not plans:
        return []
    laid = lay_out("\n".join(_dot(plan) for plan in plans), time_limit=time_limit)
    return [_template(plan, graph) for plan, graph in zip(plans, laid, strict=True)]


def is_back(plan: Plan, start: End, end: End) -> bool:
    """Whether an edge goes to an item that began to run no later."""
    return start[0] == end[0] and plan.starts[start[1]] >= plan.starts[end[1]]


def _name(end: End) -> str:
    return f"{end[0]}{end[1]}"


def _dot(plan: Plan) -> str:
    return "\n".join(["digraph {", *_dot_lines(plan), "}"])


def _dot_lines(plan: Plan) -> Iterator[str]:
    yield f"nodesep=0.42 ranksep={RANK_GAP / 72:.4f}"
    yield 'node [shape=box fixedsize=true label=""] edge [arrowhead=none]'
    for kind, count, rank in (("entry", plan.num_entries, "source"), ("exit", plan.num_exits, "sink")):
        if count:
            dots = "".join(f"{kind}{at} [width={_DOT / 72:.4f} height=0.01];" for at in range(count))
            yield f"{{rank={rank} {dots}}}"
    for slot, (width, _) in enumerate(plan.sizes):
        yield f"item{slot} [width={width / 72:.4f} height={SLOT / 72:.4f}]"
    for number, (start, end, _) in enumerate(plan.edges):
        yield f"{_dot_edge(plan, start, end)} [id={number}]"
    yield from _rows(plan)


def _dot_edge(plan: Plan, start: End, end: End) -> str:
    """Edges that go back are laid out downwards as well, as a lane: up on the right, down on the left."""
    if start == end:
        return f"{_name(start)}:e -> {_name(start)}:e"
    if is_back(plan, start, end):
        if start < end:
            return f"{_name(start)}:w -> {_name(end)}:w [weight=0]"
        return f"{_name(end)}:e -> {_name(start)}:e [weight=0]"
    return f"{_name(start)} -> {_name(end)} [weight=4]"


def _rows(plan: Plan) -> Iterator[str]:
    """Items without edges below one another, which Graphviz would put into one long row."""
    used = {end for start, stop, _ in plan.edges for end in (start, stop)}
    alone = [slot for slot in range(len(plan.sizes)) if ("item", slot) not in used]
    for above, below in zip(alone, alone[_MOST_ABREAST:]):
        yield f"item{above} -> item{below} [style=invis weight=0]"


def _template(plan: Plan, graph: PlacedGraph) -> Template:
    left, _, right, top = (float(number) for number in graph.get("bb", "").split(","))
    nodes, edges = graph.get("objects", ()), graph.get("edges", ())
    places = {node.get("name", ""): _pair(node["pos"]) for node in nodes if "pos" in node}
    curves = {int(edge["id"]): edge.get("pos", "") for edge in edges if "id" in edge}
    items = [
        (round(x - left - width / 2), round(top - y - height / 2), width, height)
        for slot, (width, height) in enumerate(plan.sizes)
        for x, y in [places[f"item{slot}"]]
    ]
    return Template(
        (round(right - left), round(top)),
        items,
        [round(places[f"entry{at}"][0] - left) for at in range(plan.num_entries)],
        [round(places[f"exit{at}"][0] - left) for at in range(plan.num_exits)],
        [
            Edge(
                _number(plan, start),
                _number(plan, end),
                is_back(plan, start, end),
                later,
                _points(curves[number], left, top),
            )
            for number, (start, end, later) in enumerate(plan.edges)
        ],
    )


def _points(spline: str, left: float, top: float) -> list[int]:
    pairs = [_pair(point) for point in spline.split() if point[0] not in "es"]
    return [number for x, y in pairs for number in (round(x - left), round(top - y))]


def _number(plan: Plan, end: End) -> int:
    before = {"item": 0, "entry": len(plan.sizes), "exit": len(plan.sizes) + plan.num_entries}
    return before[end[0]] + end[1]


def _pair(text: str) -> tuple[float, float]:
    x, y = text.split(",")
    return float(x), float(y)
