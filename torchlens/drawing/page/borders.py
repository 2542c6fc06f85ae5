"""Links cut at the borders of the boxes they cross: what each box's inside connects."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from torchlens.drawing.crossing import crosses_calls
from torchlens.drawing.page.parts import Part, Parts
from torchlens.drawing.scene import Link

End: TypeAlias = tuple[Literal["item", "entry", "exit"], int]
"""A direct item by its slot, or a place on the box's upper or lower border."""

_MOST_ENDS: Final = 24
"""With more sources outside, or users, those of one item share a place on the border."""


@dataclass(slots=True)
class Inside:
    """What is drawn between the direct items of one box."""

    entries: dict[Hashable, int] = field(default_factory=dict[Hashable, int])
    exits: dict[Hashable, int] = field(default_factory=dict[Hashable, int])
    edges: dict[tuple[End, End, bool], int] = field(default_factory=dict[tuple[End, End, bool], int])
    """Each once, with its number; and whether it goes forward to a later pass, beside what stays in one."""

    def edge(self, start: End, end: End, *, later: bool = False) -> int:
        """The number of an edge, a new one if it is not there."""
        return self.edges.setdefault((start, end, later), len(self.edges))


@dataclass(frozen=True, slots=True)
class Borders:
    """The insides of all boxes, and the way of each link through them."""

    insides: dict[int, Inside]
    """By the part's index."""
    ways: list[tuple[Link, list[int]]]
    """With the number of its edge in each box: outwards from the source, then inwards to the target."""
    loops: list[Loop]


@dataclass(frozen=True, slots=True)
class Loop:
    """What goes from one call of a module into a later one, drawn at the module while it is closed."""

    box: Part
    edge: int
    """Its number in what the box is in."""
    link: int
    """The link's place in `Borders.ways`."""


@dataclass(frozen=True, slots=True)
class _Way:
    out: list[Part]
    """From the source up to, without, the box that holds both."""
    across: Part
    into: list[Part]
    """The same from the target."""


def borders_of(parts: Parts, links: list[Link]) -> Borders:
    """Cut the links of a scene; those from a buffer's first value are not drawn."""
    drawn = [link for link in links if {link.source.index, link.target.index} <= parts.of_leaf.keys()]
    ways = [_way(parts.of_leaf[link.source.index], parts.of_leaf[link.target.index]) for link in drawn]
    insides = {part.index: Inside() for part in parts.all if part.leaf is None}
    names = _Names(ways)
    cut = [(link, list(_cut(link, way, insides, names))) for link, way in zip(drawn, ways)]
    loops = [
        loop for at, (link, way) in enumerate(zip(drawn, ways)) for loop in _loops(at, link, way, insides)
    ]
    return Borders(insides, cut, loops)


def _way(source: Part, target: Part) -> _Way:
    out, into = [source], [target]
    while out[-1].parent is not into[-1].parent:
        # a part stands before what is in it, so the later of two boxes does not hold the other
        deeper = out if _parent(out).index > _parent(into).index else into
        deeper.append(_parent(deeper))
    return _Way(out, _parent(out), into)


def _loops(at: int, link: Link, way: _Way, insides: dict[int, Inside]) -> Iterator[Loop]:
    """At each module around a link of which it leaves one call and enters another."""
    box = way.across
    while box.parent is not None:
        if box.kind == "module" and crosses_calls(link, box.boxes[0]):
            end: End = ("item", box.slot)
            yield Loop(box, insides[box.parent.index].edge(end, end), at)
        box = box.parent


def _parent(chain: list[Part]) -> Part:
    parent = chain[-1].parent
    assert parent is not None
    return parent


class _Names:
    """Which links share a place on a border: those of one op; where these are too many, of one item."""

    def __init__(self, ways: list[_Way]) -> None:
        sources: dict[int, set[int]] = {}
        users: dict[int, set[int]] = {}
        for way in ways:
            for box in way.into[1:]:
                sources.setdefault(box.index, set()).add(way.out[0].index)
            for box in way.out[1:]:
                users.setdefault(box.index, set()).add(way.out[0].index)
        self._many_in = {box for box, found in sources.items() if len(found) > _MOST_ENDS}
        self._many_out = {box for box, found in users.items() if len(found) > _MOST_ENDS}

    def entry(self, box: Part, way: _Way) -> int:
        return way.out[-1 if box.index in self._many_in else 0].index

    def exit(self, box: Part, way: _Way, item: Part) -> int:
        return (item if box.index in self._many_out else way.out[0]).index


def _start(item: Part) -> int:
    """Its place among all, outputs of one call at the first of them: what leads from there on is forward."""
    return item.index if item.leaf is None else item.index - (item.leaf.index - item.leaf.start)


def _cut(link: Link, way: _Way, insides: dict[int, Inside], names: _Names) -> Iterator[int]:
    for item, box in zip(way.out, way.out[1:]):
        inside = insides[box.index]
        place = inside.exits.setdefault(names.exit(box, way, item), len(inside.exits))
        yield inside.edge(("item", item.slot), ("exit", place))
    start, end = way.out[-1], way.into[-1]
    later = link.later and _start(start) < _start(end)
    yield insides[way.across.index].edge(("item", start.slot), ("item", end.slot), later=later)
    for box, item in reversed(list(zip(way.into[1:], way.into))):
        inside = insides[box.index]
        place = inside.entries.setdefault(names.entry(box, way), len(inside.entries))
        yield inside.edge(("entry", place), ("item", item.slot))
