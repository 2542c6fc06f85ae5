"""Two runs in one scene: what is in both, what one has alone, and how far values are apart."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, note, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import torchlens as tl
from tests import models
from tests.programs import random_source
from tests.programs.examples import EXAMPLES
from tests.programs.random_source import Program
from tests.programs.reading import floats
from torchlens.drawing.one_run import build_scene
from torchlens.drawing.scene import Box, Leaf, Mark, Scene
from torchlens.drawing.two_runs import build_difference_scene

NAMES = ("old", "new")
MIRRORED = {"both": "both", "added": "removed", "removed": "added"}


def scene_of(a: Any, b: Any) -> Scene:
    """The scene of two traces, with what holds for every one."""
    scene = build_difference_scene(a._views, b._views, NAMES)
    assert_boxes(scene)
    mirror = build_difference_scene(b._views, a._views, NAMES)
    assert_boxes(mirror)
    ours, theirs = leaves_of_ops(scene, a, b)
    others, its = leaves_of_ops(mirror, b, a)
    for mine, other in ((ours, its), (theirs, others)):
        for op, leaf in mine.items():
            assert mark(other[op]).status == MIRRORED[mark(leaf).status]
            assert mark(other[op]).distance == mark(leaf).distance
    assert_links(scene, (a, ours), (b, theirs))
    assert sorted(MIRRORED[str(link.status)] for link in mirror.links) == sorted(
        str(link.status) for link in scene.links
    )
    assert_order(theirs, b)
    return scene


def mark(leaf: Leaf) -> Mark:
    assert leaf.mark is not None
    return leaf.mark


def assert_boxes(scene: Scene) -> None:
    """Each item is in the box that it names, and leaves are numbered in the order in which they stand."""
    assert scene.top.parent is None and scene.top.status == "both"
    for box in [scene.top, *scene.top.boxes()]:
        assert box.status in MIRRORED
        assert len({id(item) for item in box.items}) == len(box.items)
        for item in box.items:
            assert (item.box if isinstance(item, Leaf) else item.parent) is box
        if box.status == "added":
            assert all(mark(leaf).status == "added" for leaf in box.leaves())
        if box.status == "removed":  # a box of both in it may hold more of the second run
            direct = [item for item in box.items if isinstance(item, Leaf)]
            assert all(mark(leaf).status != "added" for leaf in direct)
    assert [*map(id, scene.top.leaves())] == [*map(id, scene.leaves)]
    assert [leaf.index for leaf in scene.leaves] == list(range(len(scene.leaves)))


def leaves_of_ops(scene: Scene, a: Any, b: Any) -> tuple[dict[int, Leaf], dict[int, Leaf]]:
    """By op of either run the one leaf that it is in."""
    ours: dict[int, Leaf] = {}
    theirs: dict[int, Leaf] = {}
    for leaf in scene.leaves:
        (op,) = leaf.ops
        found = mark(leaf)
        assert (found.twin is None) is (found.status != "both") and found.text
        twin = op if found.status == "added" else found.twin
        if found.status != "added":
            assert op == a.ops[op.index] and ours.setdefault(op.index, leaf) is leaf
        if twin is not None:
            assert twin == b.ops[twin.index] and theirs.setdefault(twin.index, leaf) is leaf
    assert sorted(ours) == list(range(len(a.ops)))
    assert sorted(theirs) == list(range(len(b.ops)))
    return ours, theirs


def assert_links(scene: Scene, *runs: tuple[Any, dict[int, Leaf]]) -> None:
    """Each edge of either run is in one link, whose status says which runs have edges there."""
    by_ends = {(link.source.index, link.target.index): link for link in scene.links}
    assert len(by_ends) == len(scene.links)
    edges: list[dict[tuple[int, int], set[tuple[int, int]]]] = []
    for trace, leaf_of in runs:
        found: dict[tuple[int, int], set[tuple[int, int]]] = {}
        for op in trace.ops:
            for parent in op.parents:
                ends = leaf_of[parent.index].index, leaf_of[op.index].index
                found.setdefault(ends, set()).add((parent.index, op.index))
        edges.append(found)
    ours, theirs = edges
    assert by_ends.keys() == ours.keys() | theirs.keys()
    for ends, link in by_ends.items():
        status = ("both" if ends in theirs else "removed") if ends in ours else "added"
        assert link.status == status
        assert set(link.edges) == (theirs if status == "added" else ours)[ends]
        assert link.positions


def assert_order(theirs: dict[int, Leaf], b: Any) -> None:
    """What the second run has alone comes behind what both have before it in the same box."""
    last: dict[int, int] = {}
    for op in range(len(b.ops)):
        leaf = theirs[op]
        assert leaf.index > last.get(id(leaf.box), -1), b.ops[op].label
        last[id(leaf.box)] = leaf.index


def shown(item: Leaf | Box, depth: int = 0) -> list[str]:
    """A box as lines, with + and - before what one run has alone and ~ before values that differ."""
    if isinstance(item, Leaf):
        found = mark(item)
        sign = {"both": " ", "added": "+", "removed": "-"}[found.status]
        sign = "~" if found.distance else "?" if sign == " " and found.distance is None else sign
        return [f"{sign}{'  ' * depth}{item.first.label}"]
    sign = {"both": " ", "added": "+", "removed": "-", None: "!"}[item.status]
    own = [] if item.parent is None else [f"{sign}{'  ' * depth}[{item.name} {item.type_name}]"]
    return own + [line for inner in item.items for line in shown(inner, depth + len(own))]


def outline(a: Any, b: Any) -> list[str]:
    return shown(scene_of(a, b).top)


def sequence(*parts: nn.Module) -> nn.Module:
    """The parts one after the other, with weights that are the same each time."""
    torch.manual_seed(0)
    for part in parts:
        for parameter in part.parameters():
            nn.init.normal_(parameter)
    return nn.Sequential(*parts)


# ---- a run and itself ----------------------------------------------------------------------------


def described(scene: Scene) -> list[object]:
    boxes = [
        (box.label, box.type_name, box.address, box.calls, [*map(name_of, box.items)])
        for box in [scene.top, *scene.top.boxes()]
    ]
    links = [
        (link.source.index, link.target.index, link.edges, link.positions, str(link.shape))
        for link in scene.links
    ]
    return [boxes, [(leaf.index, leaf.label, leaf.box.label) for leaf in scene.leaves], links, scene.rolled]


def name_of(item: Leaf | Box) -> str:
    return item.label


def assert_same_as_one(one: Any, again: Any) -> None:
    scene = scene_of(one, again)
    assert described(scene) == described(build_scene(one._views, rolled=False))
    assert {box.status for box in scene.top.boxes()} <= {"both"}
    assert {link.status for link in scene.links} <= {"both"}
    for leaf in scene.leaves:
        found = mark(leaf)
        assert (found.status, found.distance, found.text) == ("both", 0.0, "equal") or (
            found.distance is None and leaf.first.func_name == "empty"
        )


@pytest.mark.parametrize("name", EXAMPLES)
def test_two_runs_of_one_model_are_the_scene_of_one(name: str) -> None:
    example = EXAMPLES[name]

    def run() -> Any:
        torch.manual_seed(0)
        options = tl.options.CaptureOptions(seed=0)
        return tl.trace(example.build(), example.inputs(), input_kwargs=example.kwargs(), capture=options)

    assert_same_as_one(run(), run())


@settings(max_examples=15)
@given(program=random_source.programs(is_module=False) | random_source.programs(is_module=True))
def test_a_program_beside_itself(program: Program) -> None:
    note(program.source)
    assert_same_as_one(run_program(program), run_program(program))


@settings(max_examples=25)
@given(data=st.data(), is_module=st.booleans())
def test_two_programs(data: st.DataObject, is_module: bool) -> None:
    programs = [data.draw(random_source.programs(is_module=is_module)) for _ in range(2)]
    for program in programs:
        note(program.source)
    scene_of(*map(run_program, programs))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("Looped", "Unrolled", id="a loop and its rounds written out"),
        pytest.param("StackedBlocks", "ReusedBlock", id="one module for three"),
        pytest.param("SharedByTwoParents", "StackedBlocks", id="a shared module"),
        pytest.param(
            "ReusedBlock", "weight_normed", id="what the second has alone, in a module of the first"
        ),
        pytest.param("CachesKeys", "WritesEveryWay", id="writes in place"),
        pytest.param("RecursiveFunction", "CallsItself", id="two recursions"),
        pytest.param("Hooked", "ReusedRelu", id="hooks"),
    ],
)
def test_two_models(one: str, other: str) -> None:
    scene_of(*(tl.trace(EXAMPLES[name].build(), EXAMPLES[name].inputs()) for name in (one, other)))


def run_program(program: Program) -> Any:
    return tl.trace(program.build(), program.inputs(), capture=tl.options.CaptureOptions(seed=0))


# ---- what one run has alone ----------------------------------------------------------------------


def test_a_dropout_put_in_stands_where_it_runs_and_the_others_keep_their_boxes() -> None:
    one, other = nn.Linear(4, 4), nn.Linear(4, 3)
    a = tl.trace(sequence(one, nn.ReLU(), other), floats(2, 4))
    b = tl.trace(sequence(one, nn.ReLU(), nn.Dropout(0.0), other).eval(), floats(2, 4))
    assert outline(a, b) == [
        " input_1:1",
        " [Sequential Sequential]",
        "   [0 Linear]",
        "     linear_1:1",
        "   [1 ReLU]",
        "     relu_1:1",
        "+  [2 Dropout]",
        "+    dropout_1:1",
        "   [2 → 3 Linear]",
        "     linear_2:1",
        " output_1:1",
    ]
    links = {(link.source.first.type, link.target.first.type): link.status for link in scene_of(a, b).links}
    assert links == {
        ("input", "linear"): "both",
        ("linear", "relu"): "both",
        ("relu", "linear"): "removed",
        ("relu", "dropout"): "added",
        ("dropout", "linear"): "added",
        ("linear", "output"): "both",
    }


def test_a_removed_block_is_a_box_of_the_first_run() -> None:
    model = models.StackedBlocks()
    a = tl.trace(model, floats(3, 4))
    del model.blocks[1]
    scene = scene_of(a, tl.trace(model, floats(3, 4)))
    (block,) = [box for box in scene.top.boxes() if box.status == "removed" and box.type_name != "Linear"]
    assert block.type_name == "ResidualBlock"
    assert [mark(leaf).status for leaf in block.leaves()] == ["removed"] * 4
    assert {mark(leaf).text for leaf in block.leaves()} == {"only in old"}
    assert sum(mark(leaf).status != "both" for leaf in scene.leaves) == 4


def test_an_empty_module_put_in_is_an_empty_box() -> None:
    class Passes(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x

    a = tl.trace(sequence(nn.ReLU()), floats(2, 4))
    b = tl.trace(sequence(nn.ReLU(), Passes()), floats(2, 4))
    inner = ["   [0 ReLU]", "     relu_1:1"]
    first, last = [" input_1:1", " [Sequential Sequential]"], [" output_1:1"]
    assert outline(a, b) == [*first, *inner, "+  [1 Passes]", *last]
    assert outline(b, a) == [*first, *inner, "-  [1 Passes]", *last]


class Activates(nn.Module):
    def __init__(self, act: nn.Module) -> None:
        super().__init__()
        self.act = act

    def forward(self, x: Tensor) -> Tensor:
        return self.act(x) * 2


def test_another_activation_under_one_name_is_one_box_with_both_classes() -> None:
    a, b = (tl.trace(Activates(act), floats(2, 4)) for act in (nn.ReLU(), nn.GELU()))
    scene = scene_of(a, b)
    assert shown(scene.top) == [
        " input_1:1",
        " [Activates Activates]",
        "   [act ReLU → GELU]",
        "-    relu_1:1",
        "+    gelu_1:1",
        "~  mul_1:1",
        "~output_1:1",
    ]
    added = next(leaf for leaf in scene.leaves if mark(leaf).status == "added")
    assert (mark(added).text, mark(added).distance, added.first) == ("only in new", None, b["gelu_1:1"])


def test_a_block_of_blocks_put_in_is_boxes_within_boxes() -> None:
    one = nn.Linear(4, 4)
    a = tl.trace(sequence(one), floats(2, 4))
    b = tl.trace(sequence(one, models.Wrapper(models.Wrapper(nn.Tanh()))), floats(2, 4))
    assert outline(a, b) == [
        " input_1:1",
        " [Sequential Sequential]",
        "   [0 Linear]",
        "     linear_1:1",
        "+  [1 Wrapper]",
        "+    [inner Wrapper]",
        "+      [inner Tanh]",
        "+        tanh_1:1",
        "~output_1:1",
    ]


class Rectifies(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.relu()


def test_modules_of_other_name_and_class_that_hold_the_same_ops_are_one_box() -> None:
    a = tl.trace(sequence(nn.Identity(), nn.ReLU()), floats(2, 4))
    b = tl.trace(sequence(nn.Identity(), nn.Tanh(), Rectifies()), floats(2, 4))
    assert outline(a, b)[-5:] == [
        "+  [1 Tanh]",
        "+    tanh_1:1",
        "   [1 → 2 ReLU → Rectifies]",
        "~    relu_1:1",
        "~output_1:1",
    ]


def test_a_module_in_the_first_run_alone_may_hold_what_both_have() -> None:
    """Its ops are aligned by order with those of a plain function; the module is in one run only."""
    model = nn.Sequential(nn.Tanh(), nn.ReLU())
    a, b = tl.trace(model, floats(2, 4)), tl.trace(lambda x: x.tanh().exp().relu(), floats(2, 4))
    assert outline(a, b) == [
        " input_1:1",
        "-[Sequential Sequential]",
        "-  [0 Tanh]",
        "     tanh_1:1",
        "-  [1 ReLU]",
        "~    relu_1:1",
        "+exp_1:1",
        "~output_1:1",
    ]
    assert outline(b, a) == [" input_1:1", " tanh_1:1", "-exp_1:1", "~relu_1:1", "~output_1:1"]


def test_a_wrapped_model_keeps_its_boxes() -> None:
    torch.manual_seed(0)
    model = models.StackedBlocks()
    a, b = tl.trace(model, floats(3, 4)), tl.trace(nn.Sequential(models.Wrapper(model)), floats(3, 4))
    scene = scene_of(a, b)
    blocks = [box for box in scene.top.boxes() if box.type_name == "ResidualBlock"]
    assert [(box.name, box.status) for box in blocks] == [(f"blocks.{at}", "both") for at in range(3)]
    assert {mark(leaf).text for leaf in scene.leaves} == {"equal"}


class Rounds(nn.Module):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.count, self.act = count, nn.Tanh()

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.count):
            x = self.act(x) * 0.5
        return x


@pytest.mark.parametrize("count", [1, 2])
def test_one_more_pass_of_a_loop(count: int) -> None:
    a, b = (tl.trace(Rounds(rounds), floats(2, 4)) for rounds in (count, count + 1))
    lines = outline(a, b)
    shared = [[f"   [act:{at} Tanh]", f"     tanh_1:{at}", f"   mul_1:{at}"] for at in range(1, count + 1)]
    new = count + 1
    assert lines == [
        " input_1:1",
        " [Rounds Rounds]",
        *(line for lines in shared for line in lines),
        f"+  [act:{new} Tanh]",
        f"+    tanh_1:{new}",
        f"+  mul_1:{new}",
        "~output_1:1",
    ]


def test_a_recursion_that_goes_deeper() -> None:
    a, b = (tl.trace(models.CallsItself(), (floats(2, 4), depth)) for depth in (2, 3))
    scene = scene_of(a, b)
    added = [leaf.label for leaf in scene.leaves if mark(leaf).status == "added"]
    assert added == ["tanh_1:3", "mul_1:1"]
    assert [box.status for box in scene.top.boxes()] == ["both", "both", "added"]


def test_of_a_call_that_gives_more_tensors_the_further_ones_are_added() -> None:
    a, b = (tl.trace(lambda x, n=n: sum(x.chunk(n)), floats(6, 4)) for n in (2, 3))
    scene = scene_of(a, b)
    chunks = [mark(leaf).status for leaf in scene.leaves if leaf.first.type == "chunk"]
    assert chunks == ["both", "both", "added"]


# ---- values --------------------------------------------------------------------------------------


def test_a_changed_weight_colours_what_depends_on_it() -> None:
    model = sequence(nn.Linear(4, 4), nn.Linear(4, 4))
    a = tl.trace(model, floats(2, 4))
    with torch.no_grad():
        model[1].bias[0] += 1.0
    b = tl.trace(model, floats(2, 4))
    scene = scene_of(a, b)
    marks = {leaf.first.label: mark(leaf) for leaf in scene.leaves}
    assert [marks[label].text for label in ("input_1:1", "linear_1:1")] == ["equal", "equal"]
    ours, theirs = (trace["linear_2:1"].out.detach().double() for trace in (a, b))
    apart, size = (ours - theirs).abs(), torch.maximum(ours.abs(), theirs.abs())
    relative = float((apart / size).max())
    assert marks["linear_2:1"].distance == pytest.approx(relative)
    assert marks["linear_2:1"].text == f"max |a−b| {float(apart.max()):.2g}, relative {relative:.2g}"
    assert marks["output_1:1"].distance == marks["linear_2:1"].distance


@pytest.mark.parametrize(
    ("one", "other", "distance", "text"),
    [
        (torch.zeros(3), -torch.zeros(3), 0.0, "3 elements with other bits"),
        (torch.ones(2), torch.ones(2).double(), 0.0, "equal, but float32 and float64"),
        (torch.ones(2), torch.tensor([1.0, math.nan]), math.inf, "max |a−b| inf, relative inf"),
        (torch.ones(2, 3), torch.ones(4, 3), None, "shapes differ: 2×3 and 4×3"),
    ],
)
def test_what_is_said_of_two_values(one: Tensor, other: Tensor, distance: float | None, text: str) -> None:
    leaf = scene_of(*(tl.trace(nn.Identity(), value) for value in (one, other))).leaves[0]
    assert (mark(leaf).distance, mark(leaf).text) == (distance, text)


def test_another_batch_size_leaves_nothing_to_measure() -> None:
    model = models.StackedBlocks()
    scene = scene_of(tl.trace(model, floats(3, 4)), tl.trace(model, floats(5, 4)))
    assert {mark(leaf).status for leaf in scene.leaves} == {"both"}
    assert {(mark(leaf).distance, mark(leaf).text) for leaf in scene.leaves} == {
        (None, "shapes differ: 3×4 and 5×4")
    }
    assert {leaf.first.shape for leaf in scene.leaves} == {(3, 4)}
    assert {mark(leaf).twin.shape for leaf in scene.leaves} == {(5, 4)}  # type: ignore[union-attr]


def test_values_that_one_run_has_not_kept_are_a_reason_with_its_name() -> None:
    model = models.StackedBlocks()
    a, b = tl.trace(model, floats(3, 4)), tl.trace(model, floats(3, 4), save=[])
    scene = scene_of(a, b)
    inner = [mark(leaf) for leaf in scene.leaves if leaf.first.type == "linear"]
    assert len(inner) == 6
    assert all(found.distance is None and found.text.startswith("new: the value was not") for found in inner)


def test_saved_traces_give_the_scene_of_those_in_memory(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = models.StackedBlocks()
    traces = [tl.trace(model, floats(3, 4))]
    del model.blocks[1]
    traces.append(tl.trace(model, floats(3, 4)))
    for at, trace in enumerate(traces):
        tl.save(trace, tmp_path / str(at))
    scenes = [scene_of(*traces), scene_of(*(tl.load(tmp_path / str(at)) for at in range(2)))]
    live, loaded = ([described(s), shown(s.top), [mark(leaf).text for leaf in s.leaves]] for s in scenes)
    assert live == loaded
