"""What `hide=` leaves out, and where what flowed through it goes."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor

import torchlens as tl
from tests import models
from tests.drawing.hidden_ops import edges_past
from tests.drawing.traces import Runs, drawn, traced
from tests.programs.examples import EXAMPLES
from torchlens.drawing.one_run import build_scene
from torchlens.drawing.pruning import without
from torchlens.drawing.scene import Leaf


@pytest.mark.parametrize("rolled", [False, True])
@pytest.mark.parametrize("name", EXAMPLES)
def test_data_flows_past_hidden_ops_as_networkx_says(name: str, rolled: bool) -> None:
    trace = traced(name)
    scene = build_scene(trace._views, rolled=rolled)
    random = Random(name)
    for part in (0.2, 0.5, 0.8):
        hidden = [leaf for leaf in scene.leaves if random.random() < part]
        labels = {op.label for leaf in hidden for op in leaf.ops}
        shown = without(scene, hidden)
        assert [leaf.label for leaf in shown.leaves] == [
            leaf.label for leaf in scene.leaves if leaf not in set(hidden)
        ]
        assert [leaf.index for leaf in shown.leaves] == list(range(len(shown.leaves)))
        leaf_of = {op.label: leaf for leaf in shown.leaves for op in leaf.ops}
        expected = {(leaf_of[a], leaf_of[b]) for a, b in edges_past(trace.graph, labels)}
        ends = [(link.source, link.target) for link in shown.links]
        assert len(set(ends)) == len(ends)
        assert set(ends) == expected
        for link in shown.links:
            assert {trace.ops[child] for _, child in link.edges} <= set(link.target.ops)
            assert link.positions
        assert all(box.items for box in shown.top.boxes())


def test_a_chain_of_hidden_ops_becomes_one_arrow() -> None:
    trace = tl.trace(lambda x: torch.relu(x.view(12).view(4, 3).view(3, 4)), torch.ones(3, 4))
    picture = drawn(trace, hide=tl.func("view"))
    assert picture.ends() == [("input_1", "relu_1"), ("relu_1", "output_1")]
    assert "3 ops hidden" in picture.below


def test_the_arrow_past_hidden_ops_says_what_its_target_reads() -> None:
    trace = tl.trace(lambda x: x + x.view(12)[:4], torch.ones(3, 4))
    picture = drawn(trace, hide=tl.func("view") | tl.func("getitem"))
    (arrow,) = [arrow for arrow in picture.arrows if arrow.target == picture.node("add_1")]
    assert arrow.source == picture.node("input_1")
    assert arrow.label == "self, other varies ×2"


@pytest.mark.parametrize("kind", ["input", "output"])
def test_inputs_and_outputs_can_be_hidden(kind: str) -> None:
    picture = drawn(traced("Siamese"), hide=tl.where(lambda op: op.kind == kind))
    assert not any(title.startswith(kind) for title in picture.titles())
    assert picture.arrows


def test_hiding_all_is_refused() -> None:
    with pytest.raises(tl.errors.OptionError, match="hide leaves nothing to draw: it names all ops"):
        traced("Looped").draw(hide=tl.where(lambda op: True))


def test_a_run_without_ops_cannot_be_drawn() -> None:
    with pytest.raises(tl.errors.OptionError, match="the trace has no ops to draw"):
        tl.trace(lambda: 3, ()).draw()


def test_a_rolled_layer_stays_while_one_of_its_passes_is_shown() -> None:
    trace = traced("Looped")
    whole = drawn(trace, rolled=True)
    part = drawn(trace, rolled=True, hide=["tanh_1:1", "tanh_1:2"])
    assert part.nodes == whole.nodes
    gone = drawn(trace, rolled=True, hide=["tanh_1:1", "tanh_1:2", "tanh_1:3"])
    assert list(gone.nodes.values()) == [
        ["input_1", "x", "3×4 float32"],
        ["Looped", "mul_1 ×3", "3×4 float32"],
        ["output_1", "3×4 float32"],
    ]
    assert "1 layer hidden" in gone.below


def test_a_hidden_layer_that_runs_in_several_places_joins_only_what_one_pass_joins() -> None:
    trace = tl.trace(models.ReusedRelu(), torch.ones(3, 4))
    picture = drawn(trace, rolled=True, hide=tl.func("relu"))
    assert picture.ends() == [("input_1", "sub_1"), ("sub_1", "mul_1"), ("mul_1", "output_1")]


def test_modules_of_which_all_is_hidden_have_no_frame() -> None:
    def runs(self: Any, x: Tensor) -> Tensor:
        return self.last(self.first(x))

    def shows(self: Any, x: Tensor) -> Tensor:
        return x.view(12).view(3, 4)

    trace = tl.trace(
        Runs(runs, first=Runs(shows), last=Runs(lambda self, x: x.sin().cos())), torch.ones(3, 4)
    )
    titles = [lines[0] for lines in drawn(trace, hide=tl.func("view")).clusters.values()]
    assert titles == ["Runs", "last"]


def test_a_copy_is_made_and_the_scene_stays_as_it_was() -> None:
    scene = build_scene(traced("Looped")._views, rolled=False)
    before = list(scene.leaves)
    shown = without(scene, before[:1])
    assert scene.leaves == before
    assert all(isinstance(leaf, Leaf) and leaf not in before for leaf in shown.leaves)
