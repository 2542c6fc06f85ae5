"""Which parts of a scene are built alike: the same classes, functions, shapes and wiring inside."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TypeAlias

from torchlens._trace.op import Op
from torchlens.drawing.scene import Box, Item, Leaf, Link, Scene, path_to
from torchlens.report.amounts import ShapeRange
from torchlens.report.sizes import shape_of

IsOpen: TypeAlias = Callable[[Box, int], bool]
"""Whether a box, so many modules below the root, shows what is in it."""


@dataclass(slots=True)
class Likeness:
    """Which items are alike, and which feed one another."""

    numbers: dict[Item, int] = field(default_factory=dict["Item", int])
    """Items with the same number are alike."""
    flows: set[tuple[Item, Item]] = field(default_factory=set["tuple[Item, Item]"])
    """Items of one box of which the first gives the second something."""


def number_alike(scene: Scene, is_open: IsOpen, apart: Collection[Box] = ()) -> Likeness:
    """Number all items of a scene; labels, addresses and values tell nothing apart.

    The boxes of `apart` are like no other.

    Two boxes are alike if they are of one class, their items are alike in order, the same outputs of these go
    to the same arguments of one another, and both are open or both are closed. Where they get their inputs is
    not looked at.
    """
    return _Numberer(scene, is_open, apart).found


class _Numberer:
    def __init__(self, scene: Scene, is_open: IsOpen, apart: Collection[Box]) -> None:
        self._is_open = is_open
        self._apart = apart
        self.found = Likeness()
        self._numbers: dict[object, int] = {}
        self._start: dict[Item, int] = {}
        """The index of the first leaf in each item."""
        self._links: dict[Box, list[tuple[Item, Item, Link]]] = {}
        """By the innermost box that holds both ends, with the items of it that they are in."""
        for link in scene.links:
            box, source, target = _meet(link)
            self._links.setdefault(box, []).append((source, target, link))
            self.found.flows.add((source, target))
        self._begin(scene.top)
        self._number(scene.top, -1)

    def _begin(self, item: Item) -> int:
        """Note where each item starts; one past its last leaf."""
        if isinstance(item, Leaf):
            self._start[item] = item.index
            return item.index + 1
        end = 0
        for at, inner in enumerate(item.items):
            end = self._begin(inner)
            if not at:
                self._start[item] = self._start[inner]
        return end

    def _number(self, item: Item, level: int) -> int:
        key = _look(item) if isinstance(item, Leaf) else self._build(item, level)
        number = self.found.numbers[item] = self._numbers.setdefault(key, len(self._numbers))
        return number

    def _build(self, box: Box, level: int) -> object:
        numbers = tuple(self._number(item, level + 1) for item in box.items)
        at = {item: place for place, item in enumerate(box.items)}
        wires = sorted(
            (
                at[source],
                link.source.index - self._start[source],
                at[target],
                link.target.index - self._start[target],
                tuple(link.positions),
                len(link.edges),
                link.status,
            )
            for source, target, link in self._links.get(box, ())
        )
        own = id(box) if box in self._apart else None
        is_open = level >= 0 and self._is_open(box, level)
        return own, box.type_name, box.status, len(box.calls), is_open, numbers, tuple(wires)


def _look(leaf: Leaf) -> object:
    op, shapes = leaf.first, ShapeRange()
    for each in leaf.ops:
        shapes.add(shape_of(each._seen))
    held = tuple(param.shape for param in op.params)
    status = leaf.mark and leaf.mark.status
    return op.kind, op.type, str(shapes), op.dtype, len(leaf.ops), held, _settings(op), status


def _settings(op: Op) -> str:
    """Stride, padding, dilation and groups of a convolution, which shapes need not tell apart."""
    if not (op.params and "conv" in op.operation):
        return ""
    rows = op._reader.rows
    given: list[object] = [*rows.args[op._row], *(rows.kwargs[op._row] or {}).values()]
    return " ".join(str(each) for each in given if type(each) in (int, str, tuple, list))


def _meet(link: Link) -> tuple[Box, Item, Item]:
    """The innermost box that holds both ends of a link, and which of its items they are in."""
    sources, targets = path_to(link.source), path_to(link.target)
    depth = 0
    while depth + 1 < min(len(sources), len(targets)) and sources[depth + 1] is targets[depth + 1]:
        depth += 1
    box = sources[depth]
    if isinstance(box, Leaf):  # a leaf that feeds itself
        return box.box, box, box
    return box, sources[depth + 1], targets[depth + 1]
