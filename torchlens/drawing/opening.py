"""How much of a scene is opened: as a caller says, or as much as stays readable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from torchlens.drawing.composition import Composition, Folding, compose
from torchlens.drawing.focusing import cut_out
from torchlens.drawing.scene import Box, Scene

MOST_NODES: Final = 60
"""A picture with more nodes is folded further unless it is said how deep to open it."""
_MOST_IN_CLUSTER: Final = (30, 10, 4)
"""Where folding does not help, so many nodes of a cluster are shown, fewer if that is still too much."""

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
    is_cut: bool = True
    """Whether it was closed or cut because it would have had too many nodes."""

    @property
    def is_readable(self) -> bool:
        """Whether it has no more than `MOST_NODES`."""
        return sum(1 for _ in self.composition.top.nodes()) <= MOST_NODES


def open_scene(scene: Scene, wish: Wish) -> Opened:
    """Open a scene to the depth that is asked for, or as deep as `MOST_NODES` allows.

    If it is too large with like modules folded, passes are folded as well, then modules are closed, the
    innermost ones first, and last of all long rows of ops are cut.
    """
    plain = Folding(modules=wish.fold)
    whole = _opened(scene, wish, wish.depth, plain)
    if wish.depth is not None or whole.is_readable:
        return replace(whole, is_cut=False)
    folding = replace(plain, passes=wish.fold)
    deepest = max(map(_depth, wish.focus or scene.top.boxes_in_it()), default=0)
    found = _deepest_readable(scene, wish, [None, *range(deepest, 0, -1)], folding)
    for most in () if found is not None else _MOST_IN_CLUSTER:
        cut = replace(folding, most_nodes=most)
        found = _deepest_readable(scene, wish, range(min(deepest + 1, 3), -1, -1), cut)
        if found is not None:
            break
    return found or _opened(scene, wish, 0, replace(folding, most_nodes=_MOST_IN_CLUSTER[-1]))


def _deepest_readable(
    scene: Scene, wish: Wish, depths: Sequence[int | None], folding: Folding
) -> Opened | None:
    """A scene at the first of some depths, from deep to shallow, at which it has few enough nodes.

    By bisection: what is closed further has fewer nodes.
    """
    found: Opened | None = None
    low, high = 0, len(depths)
    while low < high:
        middle = (low + high) // 2
        opened = _opened(scene, wish, depths[middle], folding)
        if opened.is_readable:
            found, high = opened, middle
        else:
            low = middle + 1
    return found


def _opened(scene: Scene, wish: Wish, depth: int | None, folding: Folding) -> Opened:
    return Opened(_composed(scene, wish, depth, folding), depth, folding)


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
