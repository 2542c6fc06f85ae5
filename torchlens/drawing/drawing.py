"""`draw`: from one trace, or two, to a picture or a page."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from torchlens._trace.views import Views
from torchlens.drawing.choices import DrawOptions
from torchlens.drawing.coloring import ByDifference, ByKind, ByQuantity, Coloring
from torchlens.drawing.composition import Node
from torchlens.drawing.dot import Look, write_dot
from torchlens.drawing.one_run import build_scene
from torchlens.drawing.opening import Opened, Wish, open_scene
from torchlens.drawing.page import page_of
from torchlens.drawing.picture import Page, PathLike, Picture, asks_for_page
from torchlens.drawing.pruning import without
from torchlens.drawing.quantities import Quantity, quantity_of
from torchlens.drawing.scene import Leaf, Scene, released
from torchlens.drawing.two_runs import build_difference_scene
from torchlens.drawing.wishes import closed_by, focused_by
from torchlens.errors import OptionError
from torchlens.report.amounts import quantity


@dataclass(frozen=True, slots=True)
class _Subject:
    """What is drawn."""

    scene: Scene
    """Whole: with state, without what is hidden and without empty boxes."""
    views: Views
    """Those of the run, of two the first."""
    title: str
    coloring: Callable[[Sequence[Sequence[Leaf]]], Coloring]
    """The colors of a picture whose nodes stand for these leaves each."""
    num_hidden: int | None = None
    """None: nothing was to be hidden."""


def draw(
    views: Views, path: PathLike | None, options: DrawOptions, hidden: Collection[int] | None = None
) -> Picture | Page:
    """Draw a run without the ops that are hidden, and write it to the path, if there is one."""
    amount = None if options.color_by is None else quantity_of(options.color_by)
    title = _title(views)
    if _asks_for_page(path, options):
        order = (True, False) if options.rolled else (False, True)
        with ExitStack() as stack:
            wholes = [stack.enter_context(released(build_scene(views, rolled=rolled))) for rolled in order]
            scenes = [_without(whole, hidden) for whole in wholes]
            return _written(_page(scenes, title, options, amount), path)

    def coloring(shown: Sequence[Sequence[Leaf]]) -> Coloring:
        return ByKind() if amount is None else ByQuantity(amount, shown)

    with released(build_scene(views, rolled=options.rolled)) as whole:
        scene = _without(whole, hidden)
        num_hidden = None if hidden is None else len(whole.leaves) - len(scene.leaves)
        picture = _picture(_Subject(scene, views, title, coloring, num_hidden), options)
    return _written(picture, path)


def draw_difference(
    runs: tuple[Views, Views], names: tuple[str, str], path: PathLike | None, options: DrawOptions
) -> Picture | Page:
    """Draw two runs in one, and write it to the path, if there is one."""
    amounts = dict.fromkeys(map(_amount, runs))
    title = f"{names[0]} → {names[1]} · {' → '.join(amounts)}"
    as_page = _asks_for_page(path, options)
    with released(build_difference_scene(*runs, names)) as whole:
        scene = without(whole, ())
        if as_page:
            return _written(_page([scene], title, options), path)
        picture = _picture(_Subject(scene, runs[0], title, lambda _: ByDifference()), options)
    return _written(picture, path)


def _asks_for_page(path: PathLike | None, options: DrawOptions) -> bool:
    if path is not None and asks_for_page(path):
        options.refuse_for_page()
        return True
    options.refuse_for_picture()
    return False


def _page(scenes: Sequence[Scene], title: str, options: DrawOptions, amount: Quantity | None = None) -> Page:
    statistics, limit = options.statistics, options.time_limit
    return Page(page_of(scenes, title=title, color_by=amount, statistics=statistics, time_limit=limit))


def _written(drawn: Picture | Page, path: PathLike | None) -> Picture | Page:
    if path is not None:
        drawn.save(path)
    return drawn


def _picture(subject: _Subject, options: DrawOptions) -> Picture:
    scene = without(subject.scene, [leaf for leaf in subject.scene.leaves if leaf.is_state])
    focus = focused_by(scene, subject.views, options.focus)
    opened = open_scene(
        scene, Wish(options.depth, closed_by(subject.views, options.collapse), focus, options.fold)
    )
    shown: dict[Node, list[Leaf]] = {}
    for leaf, node in zip(scene.leaves, opened.composition.node_of):
        shown.setdefault(node, []).append(leaf)
    coloring = subject.coloring(list(shown.values()))
    notes = list(_notes(subject, opened, options))
    look = Look(options.direction, coloring, subject.title, notes)
    return Picture(write_dot(scene, opened.composition, look), options.program, options.time_limit)


def _without(scene: Scene, hidden: Collection[int] | None) -> Scene:
    """The scene without leaves whose ops are all hidden; raises `OptionError` if nothing is left."""
    out = set(hidden or ())
    shown = without(scene, [leaf for leaf in scene.leaves if all(op.index in out for op in leaf.ops)])
    if not shown.leaves:
        raise OptionError(
            "hide leaves nothing to draw: it names all ops"
            if scene.leaves
            else "the trace has no ops to draw"
        )
    return shown


def _title(views: Views) -> str:
    record = views.reader.record
    status = "" if record.status == "complete" else f" · {record.status}"
    return f"{record.modules[0].type_name} · {_amount(views)}{status}"


def _amount(views: Views) -> str:
    """How many ops ran, and how many of the graph's nodes are buffers' versions instead."""
    rows = views.reader.numbers.rows
    state = sum(views.reader.rows.kind[row] == "buffer" for row in rows)
    buffers = f", {quantity(state, 'buffer')}" if state else ""
    return quantity(len(rows) - state, "op") + buffers


def _notes(subject: _Subject, opened: Opened, options: DrawOptions) -> Iterator[str]:
    """What of the run the picture does not show, and how to see it."""
    failure = subject.views.reader.record.failure
    if failure is not None:
        yield f"raised {failure.type_name}: {failure.message.partition(chr(10))[0]}"
    if subject.num_hidden is not None:
        yield f"{quantity(subject.num_hidden, 'layer' if options.rolled else 'op')} hidden"
    if options.focus is not None:
        yield f"only {options.focus} and what it is linked to"
    if opened.is_cut and opened.depth is not None:
        cut = ", the middle of long rows left out" if opened.folding.most_nodes else ""
        more = f"depth={opened.depth + 1} opens more, a .html page all of it"
        yield f"opened to depth {opened.depth}{cut}: {more}"
    elif opened.is_cut:
        yield "like passes are drawn once: rolled=True draws each layer once, a .html page all of it"
    if any(part.times > 1 for part in opened.composition.top.all_parts()):
        yield "like modules are drawn once, ×n: fold=False draws each"
