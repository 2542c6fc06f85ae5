"""The scene of two runs: the first with what the second has alone put in, and a mark on each leaf."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torchlens._trace.reader import TraceReader
from torchlens._trace.views import Views
from torchlens._values.geometry import dtype_name
from torchlens.comparing.alignment import Alignment, Pair, align
from torchlens.comparing.comparison import measure_pair
from torchlens.comparing.differences import Difference
from torchlens.drawing.links import links_between
from torchlens.drawing.one_run import box_of_call, build_scene, called_again
from torchlens.drawing.scene import Box, Leaf, Link, Mark, Scene, below, numbered_leaves
from torchlens.drawing.shared_calls import shared_calls
from torchlens.drawing.weaving import Weaver
from torchlens.report.amounts import quantity


def build_difference_scene(a: Views, b: Views, names: tuple[str, str]) -> Scene:
    """Two runs in one scene: every op of either in one leaf, an op of both with how far its values are apart.

    What the second run has alone stands where it runs there, between what both have. An op of both that the
    runs have in different modules stands in that of the first.
    """
    scene, found = build_scene(a, rolled=False), align(a, b)
    counted = called_again(a.reader) | called_again(b.reader)
    boxes = _shared_boxes(scene.top, (a.reader, b.reader), shared_calls(a, b, found), counted)
    ours = {leaf.first.index: leaf for leaf in scene.leaves}
    theirs = {pair.b: ours[pair.a] for pair in found.pairs}
    weaver = Weaver(b, boxes, theirs, counted)
    weaver.weave()
    _mark(scene.leaves, (a, b), found, names)
    for leaf in weaver.added:
        leaf.mark = Mark("added", None, f"only in {names[1]}")
    scene.leaves = numbered_leaves(scene.top)
    scene.links = _united(scene.links, links_between(b, theirs))
    return scene


def _shared_boxes(
    top: Box, readers: tuple[TraceReader, TraceReader], shared: Mapping[int, int], counted: set[str]
) -> dict[int, Box]:
    """The boxes of both runs by call of the second; every box gets its status and label."""
    box_of = {box.calls[0]: box for box in top.boxes()}
    for call, box in box_of.items():
        assert box.parent is not None
        box.label = box_of_call(readers[0], call, box.parent, counted=counted).label
        box.status = "removed"
    top.status = "both"
    boxes = {0: top}
    for theirs, ours in shared.items():
        boxes[theirs] = box_of[ours]
        box_of[ours].status = "both"
        _name_twice(box_of[ours], readers[1], theirs, counted)
    return boxes


def _name_twice(box: Box, reader: TraceReader, call: int, counted: set[str]) -> None:
    """Add class and name of the second run's call where they are others."""
    record = reader.record
    caller = record.modules[record.module_calls[record.module_calls[call].parent].module].addresses[0]
    assert box.parent is not None
    twin = box_of_call(reader, call, box.parent, counted=counted)
    name = below(twin.label, caller)
    if name != below(box.label, box.parent.address):
        box.label = f"{box.label} → {name}"
    if twin.type_name != box.type_name:
        box.type_name = f"{box.type_name} → {twin.type_name}"


def _mark(
    leaves: Iterable[Leaf], runs: tuple[Views, Views], found: Alignment, names: tuple[str, str]
) -> None:
    """Say of each op of the first run how it is in the second."""
    pairs = {pair.a: pair for pair in found.pairs}
    for leaf in leaves:
        pair = pairs.get(leaf.first.index)
        if pair is None:
            leaf.mark = Mark("removed", None, f"only in {names[0]}")
        else:
            leaf.mark = _compared(*runs, pair, names)


def _compared(a: Views, b: Views, pair: Pair, names: tuple[str, str]) -> Mark:
    twin = b.op(pair.b)
    difference, reason = measure_pair(a, b, pair.a, pair.b, names)
    if difference is None:
        return Mark("both", None, reason or "", twin=twin)
    dtypes = dtype_name(a.op(pair.a).dtype), dtype_name(twin.dtype)
    return Mark("both", difference.max_rel, _text(difference, dtypes), difference.equal, twin)


def _text(found: Difference, dtypes: tuple[str, str]) -> str:
    if found.equal:
        return "equal"
    if not found.unequal:
        return f"equal, but {dtypes[0]} and {dtypes[1]}"
    if not found.max_abs:  # 0.0 beside -0.0, or integers that float64 does not tell apart
        return f"{quantity(found.unequal, 'element')} with other bits"
    return f"max |a−b| {found.max_abs:.2g}, relative {found.max_rel:.2g}"


def _united(ours: Iterable[Link], theirs: Iterable[Link]) -> list[Link]:
    """The links of the first run and those that the second has alone."""
    found: dict[tuple[int, int], Link] = {}
    for link in ours:
        link.status = "removed"
        found[link.source.index, link.target.index] = link
    for link in theirs:
        known = found.setdefault((link.source.index, link.target.index), link)
        known.status = "added" if known is link else "both"
    return list(found.values())
