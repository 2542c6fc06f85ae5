"""What a page shows as nodes: modules, ops, and groups where a box would hold too many."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests.drawing.page.embedded import data_of
from tests.drawing.page.shapes import Flat, html_of, traced
from torchlens.drawing.one_run import build_scene
from torchlens.drawing.page.borders import borders_of
from torchlens.drawing.page.parts import MOST_ITEMS, Parts, parts_of
from torchlens.drawing.scene import Scene

MODELS = ("resnet", "unet", "recurrent", "over_time", "flat")


def scene_of(name: str, *, rolled: bool) -> Scene:
    return build_scene(traced(name)._views, rolled=rolled)


@pytest.mark.parametrize("rolled", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_every_leaf_that_is_no_first_value_of_a_buffer_is_one_part(name: str, rolled: bool) -> None:
    scene = scene_of(name, rolled=rolled)
    parts = parts_of(scene)
    shown = [leaf for leaf in scene.leaves if not leaf.is_state]
    assert [part.leaf for part in parts.all if part.leaf is not None] == shown
    assert all(len(part.parts) <= MOST_ITEMS for part in parts.all)
    assert all(part.parent is None or part.parent.index < part.index for part in parts.all)


@pytest.mark.parametrize("rolled", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_every_link_goes_its_way_without_a_gap(name: str, rolled: bool) -> None:
    scene = scene_of(name, rolled=rolled)
    parts = parts_of(scene)
    borders = borders_of(parts, scene.links)
    state = {leaf.index for leaf in scene.leaves if leaf.is_state}
    assert [link for link, _ in borders.ways] == [
        link for link in scene.links if link.source.index not in state
    ]
    edges = {box: list(inside.edges) for box, inside in borders.insides.items()}
    for link, way in borders.ways:
        boxes = boxes_between(parts, link.source.index, link.target.index)
        pieces = [edges[box][number] for box, number in zip(boxes, way, strict=True)]
        assert pieces[0][0] == ("item", parts.of_leaf[link.source.index].slot)
        assert pieces[-1][1] == ("item", parts.of_leaf[link.target.index].slot)


def boxes_between(parts: Parts, source: int, target: int) -> list[int]:
    """The boxes around one leaf, up to the first that holds the other as well, and down to it."""
    ups, downs = (around(parts, leaf) for leaf in (source, target))
    shared = next(box for box in ups if box in downs)
    return [*ups[: ups.index(shared) + 1], *reversed(downs[: downs.index(shared)])]


def around(parts: Parts, leaf: int) -> list[int]:
    found, part = [], parts.of_leaf[leaf].parent
    while part is not None:
        found.append(part.index)
        part = part.parent
    return found


class OneOpDeep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.outer = nn.Sequential(nn.Sequential(nn.ReLU()))
        self.same = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.same(self.outer(x)) + 1


def test_a_module_of_a_single_op_is_that_op_and_one_of_none_is_only_named() -> None:
    trace = tl.trace(OneOpDeep(), torch.ones(1, 2))
    parts = parts_of(build_scene(trace._views, rolled=False))
    relu = next(part for part in parts.all if len(part.boxes) == 3)
    assert [box.address for box in relu.boxes] == ["outer", "outer.0", "outer.0.0"]
    root = next(part for part in parts.all if part.kind == "module" and part.boxes[0].type_name)
    assert root.silent == ["same"]


def test_boxes_that_are_alike_share_a_layout() -> None:
    scene = data_of(html_of(traced("resnet")))["scenes"][0]
    num_boxes = sum(kind > 0 for kind in scene["parts"]["kind"])
    assert (num_boxes, len(scene["templates"])) == (8, 4)
    flat = data_of(html_of(tl.trace(Flat(4000), torch.ones(1, 2)), statistics=False))
    assert len(flat["scenes"][0]["templates"]) < 8


@pytest.mark.parametrize("name", MODELS)
def test_a_loaded_trace_has_the_same_page(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    trace = traced(name)
    path = tmp_path_factory.mktemp("saved") / "run.tlens"
    tl.save(trace, path)
    assert html_of(tl.load(path)) == html_of(trace)


class GivesNothing(nn.Module):
    def forward(self) -> int:
        return 3


def test_a_run_without_ops_has_a_page() -> None:
    data = data_of(html_of(tl.trace(GivesNothing(), ())))
    assert data["scenes"][0]["parts"]["kind"] == [1]
