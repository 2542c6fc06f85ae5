"""`draw`: from a trace to a picture of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import cast, get_args

from torchlens._trace.views import Views
from torchlens.drawing.coloring import ByKind, ByQuantity, Coloring
from torchlens.drawing.composition import Node
from torchlens.drawing.dot import Direction, Look, write_dot
from torchlens.drawing.one_run import build_scene
from torchlens.drawing.opening import Opened, Wish, open_scene
from torchlens.drawing.picture import Picture
from torchlens.drawing.pruning import without
from torchlens.drawing.quantities import ColorBy, quantity_of
from torchlens.drawing.rendering import Program
from torchlens.drawing.scene import Leaf, Scene
from torchlens.drawing.wishes import Modules, closed_by, focused_by
from torchlens.errors import OptionError
from torchlens.report.amounts import quantity


@dataclass(frozen=True, slots=True)
class DrawOptions:
    """What a caller may choose about a picture; `Trace.draw` says what each means."""

    rolled: bool = False
    depth: int | None = None
    collapse: Modules | Sequence[Modules] | None = None
    focus: str | None = None
    color_by: ColorBy | None = None
    direction: Direction = "down"
    fold: bool = True
    program: Program = "graphviz-pure"
    time_limit: float = 60.0

    def __post_init__(self) -> None:
        if self.direction not in get_args(Direction):
            raise OptionError(
                f"direction is {self.direction!r}; it is one of {', '.join(map(repr, get_args(Direction)))}"
            )
        depth = cast("object", self.depth)
        if depth is not None and (isinstance(depth, bool) or not isinstance(depth, int) or depth < 0):
            raise OptionError(
                f"depth is {depth!r}; give how many levels of modules to open, 0 or more, or None for "
                "as many as stay readable"
            )


def draw(views: Views, options: DrawOptions, hidden: Collection[int] = ()) -> Picture:
    """The picture of a run, without the ops that are hidden."""
    whole = build_scene(views, rolled=options.rolled)
    scene = shown_scene(whole, hidden)
    wish = Wish(
        options.depth,
        closed_by(views, options.collapse),
        focused_by(scene, views, options.focus),
        options.fold,
    )
    opened = open_scene(scene, wish)
    coloring = _coloring(scene, opened, options.color_by)
    look = Look(options.direction, coloring, _title(views), list(_notes(whole, scene, opened, options)))
    return Picture(write_dot(scene, opened.composition, look), options.program, options.time_limit)


def shown_scene(scene: Scene, hidden: Collection[int]) -> Scene:
    """The scene without leaves whose ops are all hidden, and without state, which its readers tell.

    Raises `OptionError` if nothing is left.
    """
    out = set(hidden)
    left_out = [leaf for leaf in scene.leaves if leaf.is_state or all(op.index in out for op in leaf.ops)]
    shown = without(scene, left_out)
    if not shown.leaves:
        raise OptionError(
            "hide leaves nothing to draw: it names all ops"
            if scene.leaves
            else "the trace has no ops to draw"
        )
    return shown


def _coloring(scene: Scene, opened: Opened, color_by: ColorBy | None) -> Coloring:
    if color_by is None:
        return ByKind()
    shown: dict[Node, list[Leaf]] = {}
    for leaf, node in zip(scene.leaves, opened.composition.node_of):
        shown.setdefault(node, []).append(leaf)
    return ByQuantity(quantity_of(color_by), list(shown.values()))


def _title(views: Views) -> str:
    record = views.reader.record
    status = "" if record.status == "complete" else f" · {record.status}"
    return f"{record.modules[0].type_name} · {quantity(len(views.reader.numbers.rows), 'op')}{status}"


def _notes(whole: Scene, scene: Scene, opened: Opened, options: DrawOptions) -> Iterator[str]:
    """What of the run the picture does not show, and how to see it."""
    state = sum(leaf.is_state for leaf in whole.leaves)
    hidden = len(whole.leaves) - state - len(scene.leaves)
    if hidden:
        yield f"{quantity(hidden, 'layer' if options.rolled else 'op')} hidden"
    if options.focus is not None:
        yield f"only {options.focus} and what it is linked to"
    if opened.is_cut and opened.depth is not None:
        yield f"opened to depth {opened.depth}: depth={opened.depth + 1} opens more, a .html page all of it"
    elif opened.is_cut:
        yield "like passes are drawn once: rolled=True draws each layer once, a .html page all of it"
