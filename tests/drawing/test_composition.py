"""What a picture shows of a scene: every leaf in one node, every link in one arrow or within a node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import torchlens as tl
from tests.drawing.hidden_ops import edges_past
from tests.drawing.traces import traced
from tests.programs import random_source
from tests.programs.examples import EXAMPLES
from tests.programs.random_source import Program
from torchlens.drawing.composition import Cluster, Composition, Folding, Node, compose
from torchlens.drawing.focusing import cut_out
from torchlens.drawing.one_run import build_scene
from torchlens.drawing.pruning import without
from torchlens.drawing.scene import Box, Item, Leaf, Scene, leaves_of


def scene_of(trace: Any, rolled: bool) -> Scene:
    return without(build_scene(trace._views, rolled=rolled), ())


def compositions(scene: Scene, name: str) -> Iterator[Composition]:
    """The scene opened and folded in ways that are drawn by chance, the same in each session."""
    random = Random(f"{name} {scene.rolled}")
    yield compose(scene, lambda box, level: True, Folding())
    for _ in range(8):
        closed = {box for box in scene.top.boxes() if random.random() < 0.3}
        folding = Folding(
            modules=random.random() < 0.7,
            passes=random.random() < 0.5,
            most_nodes=random.choice([None, None, 1, 3, 6]),
        )
        yield compose(scene, lambda box, level, closed=closed: box not in closed, folding)


@pytest.mark.parametrize("rolled", [False, True])
@pytest.mark.parametrize("name", EXAMPLES)
def test_leaves_links_and_counts_are_whole_however_it_is_opened(name: str, rolled: bool) -> None:
    scene = scene_of(traced(name), rolled)
    for composition in compositions(scene, name):
        assert_nodes(scene, composition)
        assert_arrows(scene, composition)
        assert_clusters(composition.top, scene.top)


def assert_nodes(scene: Scene, composition: Composition) -> None:
    nodes = list(composition.top.nodes())
    assert [node.order for node in nodes] == list(range(len(nodes)))
    assert len({node.name for node in nodes}) == len(nodes)
    assert len(composition.node_of) == len(scene.leaves)
    assert set(composition.node_of) == set(nodes)
    for node in nodes:
        shown = [leaf for leaf, of in zip(scene.leaves, composition.node_of) if of is node]
        named = [leaf for item in node.items for leaf in leaves_of(item)]
        assert set(named) <= set(shown)
        assert len(shown) % len(named) == 0  # as often in every like sibling of the clusters around it
        if node.kind == "module":
            siblings = len(shown) // len(named)
            assert node.num_runs == siblings * sum(
                len(item.calls) for item in node.items if isinstance(item, Box)
            )
        else:
            assert node.num_runs == sum(len(leaf.ops) for leaf in shown)
        assert len({leaf.first.type for leaf in shown}) == 1 or node.kind != "op"


def first_call(node: Node) -> int:
    """The first call of what a node shows; outputs of one call have the same."""
    return next(leaves_of(node.items[0])).first.call_index


def assert_arrows(scene: Scene, composition: Composition) -> None:
    ends = Counter((arrow.source, arrow.target) for arrow in composition.arrows)
    assert set(ends.values()) <= {1}
    drawn = Counter(link for arrow in composition.arrows for link in arrow.links)
    assert set(drawn.values()) <= {1}
    for arrow in composition.arrows:
        of_one_call = first_call(arrow.target) == first_call(arrow.source)
        assert arrow.returns is (arrow.target.order <= arrow.source.order or of_one_call)
        assert 1 <= arrow.count <= sum(len(link.edges) for link in arrow.links)
        for link in arrow.links:
            assert composition.node_of[link.source.index] is arrow.source
            assert composition.node_of[link.target.index] is arrow.target
    for link in scene.links:
        if link not in drawn:
            node = composition.node_of[link.source.index]
            assert node is composition.node_of[link.target.index]
            assert node.kind != "op"  # what an op feeds itself is seen


def assert_clusters(cluster: Cluster, box: Box) -> None:
    """Clusters stand within one another as the boxes do that they show."""
    assert cluster.parts
    assert not cluster.boxes or cluster.boxes[0] is box
    for part in cluster.parts:
        if isinstance(part, Node):
            assert {around(item) for item in part.items} == {box} or part.kind != "rest"
            assert around(part.items[0]) is box
        elif part.boxes:
            assert part.boxes[0].parent is box
            assert part.times == len(part.boxes)
            assert_clusters(part, part.boxes[0])
        else:
            assert part.times > 1
            assert {around(item) for item in part.span} == {box}
            assert_clusters(part, box)


def around(item: Item) -> Box | None:
    return item.box if isinstance(item, Leaf) else item.parent


@settings(max_examples=20)
@given(
    program=random_source.programs(is_module=False) | random_source.programs(is_module=True),
    rolled=st.booleans(),
    part=st.floats(0, 0.9),
)
def test_random_programs_of_which_random_ops_are_hidden(program: Program, rolled: bool, part: float) -> None:
    note(program.source)
    trace = tl.trace(program.build(), program.inputs())
    scene = build_scene(trace._views, rolled=rolled)
    random = Random(part)
    hidden = [leaf for leaf in scene.leaves if random.random() < part]
    shown = without(scene, hidden)
    leaf_of = {op.label: leaf for leaf in shown.leaves for op in leaf.ops}
    past = edges_past(trace.graph, {op.label for leaf in hidden for op in leaf.ops})
    assert {(link.source, link.target) for link in shown.links} == {(leaf_of[a], leaf_of[b]) for a, b in past}
    if shown.leaves:
        for composition in compositions(shown, program.source):
            assert_nodes(shown, composition)
            assert_arrows(shown, composition)
            assert_clusters(composition.top, shown.top)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_rolled_scene_has_one_leaf_a_layer_and_one_box_a_module(name: str) -> None:
    trace = traced(name)
    scene = scene_of(trace, rolled=True)
    assert Counter(leaf.label for leaf in scene.leaves) == Counter(
        layer.layer_label for layer in trace.layers
    )
    assert sum(len(leaf.ops) for leaf in scene.leaves) == len(trace.ops)
    addresses = [box.address for box in scene.top.boxes()]
    assert len(set(addresses)) == len(addresses)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_scene_of_every_pass_has_one_leaf_an_op_and_the_edges_of_the_graph(name: str) -> None:
    trace = traced(name)
    scene = scene_of(trace, rolled=False)
    assert sorted(op.label for leaf in scene.leaves for op in leaf.ops) == sorted(
        op.label for op in trace.ops
    )
    edges = {(link.source.first.label, link.target.first.label) for link in scene.links}
    assert edges == set(trace.graph.edges)
    for leaf in scene.leaves:
        calls = [box.calls for box in leaf.box.around()]
        assert leaf.box.parent is None or len(leaf.box.calls) == 1
        assert calls[-1:] == [[0]] or leaf.box.parent is None


@pytest.mark.parametrize("rolled", [False, True])
@pytest.mark.parametrize("name", ["StackedBlocks", "encoder", "Siamese", "SharedByTwoParents", "LSTM"])
def test_focus_keeps_what_is_inside_and_what_that_is_linked_to(name: str, rolled: bool) -> None:
    scene = scene_of(traced(name), rolled)
    for box in scene.top.boxes():
        whole = compose(scene, lambda box, level: True, Folding(modules=False))
        inside = {whole.node_of[leaf.index] for leaf in box.leaves()}
        arrows = [arrow for arrow in whole.arrows if {arrow.source, arrow.target} & inside]
        beside = {node for arrow in arrows for node in (arrow.source, arrow.target)}
        found = cut_out(whole, {box})
        assert found.arrows == arrows
        assert set(found.top.nodes()) == inside | beside
