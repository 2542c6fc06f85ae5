"""The boxes of a page: modules and ops as in the scene, and groups where a box would hold too many."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from torchlens.drawing.scene import Box, Leaf, Scene

PartKind: TypeAlias = Literal["op", "module", "group"]

MOST_ITEMS: Final = 60
"""A box with more direct items than this is cut into groups."""
_GROUP: Final = 48


@dataclass(slots=True, eq=False)
class Part:
    """One thing that the page shows as a node: an op, a module, or a group of consecutive ones."""

    kind: PartKind
    leaf: Leaf | None = None
    """Of an op."""
    boxes: list[Box] = field(default_factory=list[Box])
    """The module; of an op, the modules that it is all of, outermost first."""
    parts: list[Part] = field(default_factory=list["Part"])
    parent: Part | None = None
    index: int = 0
    """Its place in `Parts.all`, where each stands before what is in it."""
    slot: int = 0
    """Its place in its parent."""
    silent: list[str] = field(default_factory=list[str])
    """Names of modules that were called in it and ran no op."""

    @property
    def first(self) -> Part:
        """The op that it begins with."""
        found = self
        while found.parts:
            found = found.parts[0]
        return found

    @property
    def last(self) -> Part:
        """The op that it ends with."""
        found = self
        while found.parts:
            found = found.parts[-1]
        return found


@dataclass(frozen=True, slots=True)
class Parts:
    """All parts of a scene."""

    top: Part
    all: list[Part]
    of_leaf: dict[int, Part]
    """By the leaf's index; without leaves that are a buffer's first value."""


def parts_of(scene: Scene) -> Parts:
    """The parts of a scene. A module with a single op in it is shown as that op."""
    top = Part("module", boxes=[scene.top], parts=_inside(scene.top)[0])
    found: list[Part] = []
    waiting = [top]
    while waiting:
        part = waiting.pop()
        part.index = len(found)
        found.append(part)
        part.parts = grouped(part.parts)
        for slot, inner in enumerate(part.parts):
            inner.parent, inner.slot = part, slot
        waiting.extend(reversed(part.parts))
    return Parts(top, found, {part.leaf.index: part for part in found if part.leaf is not None})


def _inside(box: Box) -> tuple[list[Part], list[str]]:
    """What a box shows, and the names of the modules in it that show nothing."""
    found: list[Part] = []
    silent: list[str] = []
    for item in box.items:
        if isinstance(item, Leaf):
            if not item.is_state:
                found.append(Part("op", leaf=item))
        elif (part := _module(item)) is not None:
            found.append(part)
        else:
            silent.append(item.name)
    return found, silent


def _module(box: Box) -> Part | None:
    parts, silent = _inside(box)
    if not parts:
        return None
    if len(parts) == 1 and parts[0].kind == "op":
        parts[0].boxes.insert(0, box)
        return parts[0]
    return Part("module", boxes=[box], parts=parts, silent=silent)


def starts_of(parts: Sequence[Part]) -> list[int]:
    """For each of the items of a box the place of the first output of its call; of what is no op, its own."""
    first: dict[int, int] = {}
    return [
        slot if part.leaf is None else first.setdefault(part.leaf.start, slot)
        for slot, part in enumerate(parts)
    ]


def grouped(parts: list[Part]) -> list[Part]:
    """The parts themselves or, where there are too many, groups of consecutive ones."""
    while len(parts) > MOST_ITEMS:
        parts = [Part("group", parts=run) for run in _runs(parts)]
    return parts


def _runs(parts: Sequence[Part]) -> Iterable[list[Part]]:
    """Runs of at most `_GROUP`, cut where the loop they begin with begins again, so that they look alike."""
    keys = [_looks(part) for part in parts]
    start = 0
    while start < len(parts):
        end = min(start + _GROUP, len(parts))
        if end < len(parts):
            again = (at for at in range(end, start + _GROUP // 2, -1) if keys[at] == keys[start])
            end = next(again, end)
        yield list(parts[start:end])
        start = end


def _looks(part: Part) -> Hashable:
    if part.leaf is not None:
        return part.leaf.first.layer.index
    if part.kind == "module":
        return part.boxes[0].type_name
    return _looks(part.parts[0]), len(part.parts)
