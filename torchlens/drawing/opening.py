"""How much of a scene is opened: as a caller says, or as much as stays readable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from torchlens.drawing.composition import Composition, Folding, compose
from torchlens.drawing.focusing import cut_out
from torchlens.drawing.scene import Box, Scene

MOST_NODES: Final = 60
"""A picture with more nodes is folded further unless it is said how deep to open it."""
_MOST_PARTS: Final = 30
"""Where folding does not help, so many parts of a frame are shown."""

IsClosed: TypeAlias = Callable[[Box, int], bool]
"""Whether a box, so many modules below the root, is to stay closed."""


def nothing_closed(box: Box, level: int) -> bool:
    """Close no module."""
    return False


@dataclass(frozen=True, slots=True)
class Wish:
    """What a caller asks of a picture."""

    depth: int | None = None
    """How many levels of modules to open; None: as many as stay readable."""
    is_closed: IsClosed = nothing_closed
    focus: frozenset[Box] = field(default_factory=frozenset["Box"])
    """The boxes to draw, with what they are linked to; empty: all."""
    fold: bool = True
    """Whether like siblings are drawn once."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A composition, and what was done to keep it small."""

    composition: Composition
    depth: int | None
    """How many levels of modules are open; None: all."""
    folding: Folding
    is_cut: bool
    """Whether it was closed or cut because it would have had too many nodes."""


def open_scene(scene: Scene, wish: Wish) -> Opened:
    """Open a scene to the depth that is asked for, or as deep as `MOST_NODES` allows.

    If it is too large with like modules folded, passes are folded as well, then modules are closed, the
    innermost ones first, and last of all long rows of ops are cut.
    """
    if wish.depth is not None:
        folding = Folding(modules=wish.fold)
        return Opened(_composed(scene, wish, wish.depth, folding), wish.depth, folding, is_cut=False)
    found: Opened | None = None
    for at, (depth, folding) in enumerate(_attempts(scene, wish)):
        found = Opened(_composed(scene, wish, depth, folding), depth, folding, is_cut=at > 0)
        if sum(1 for _ in found.composition.top.nodes()) <= MOST_NODES:
            break
    assert found is not None
    return found


def _attempts(scene: Scene, wish: Wish) -> Iterator[tuple[int | None, Folding]]:
    yield None, Folding(modules=wish.fold)
    if wish.fold:
        yield None, Folding(passes=True)
    deepest = max(map(_depth, wish.focus or scene.top.boxes_in_it()), default=0)
    for depth in range(deepest, 0, -1):
        yield depth, Folding(modules=wish.fold, passes=wish.fold)
    for depth in range(min(deepest, 3), -1, -1):
        yield depth, Folding(modules=wish.fold, passes=wish.fold, most_parts=_MOST_PARTS)


def _composed(scene: Scene, wish: Wish, depth: int | None, folding: Folding) -> Composition:
    path = {box for each in wish.focus for box in (each, *each.around())}

    def is_open(box: Box, level: int) -> bool:
        if box in path:
            return True
        if wish.focus:
            around = next((each for each in box.around() if each in wish.focus), None)
            if around is None:
                return False
            level -= sum(1 for _ in around.around()) - 1
        return (depth is None or level < depth) and not wish.is_closed(box, level)

    composition = compose(scene, is_open, folding, apart=path)
    return cut_out(composition, wish.focus) if wish.focus else composition


def _depth(box: Box) -> int:
    """How many modules are within one another below a box at most."""
    return max((1 + _depth(item) for item in box.items if isinstance(item, Box)), default=0)
