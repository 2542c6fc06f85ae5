"""How much of a run is opened: what fits without being asked, or what is asked for."""

from __future__ import annotations

import importlib
import re
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests.drawing.reading_dot import Drawn
from tests.drawing.traces import Runs, drawn, flat_function, traced
from tests.zoo.torchvision_ops import import_torchvision

MOST = 60
X = torch.ones(3, 4)


def deep(levels: int) -> nn.Module:
    """Modules within one another, each with an op of its own."""
    model: nn.Module = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    for level in range(levels):
        model = nn.Sequential(model, (nn.Tanh, nn.ReLU, nn.Sigmoid)[level % 3]())
    return model


def growing(layers: int) -> nn.Module:
    """No layer has the size of another."""
    return nn.Sequential(*(part for at in range(layers) for part in (nn.Linear(4 + at, 5 + at), nn.ReLU())))


def many_calls(count: int) -> Any:
    outside = nn.Linear(4, 4)
    with tl.capture({"a": nn.ReLU()}) as trace:
        for _ in range(count):
            outside(X)
    return trace


def repeated_groups(x: Tensor) -> Tensor:
    """Forty groups of eleven ops, each other than the rest and run twice: each folds into eleven nodes."""
    choose = Random(0)
    for _ in range(40):
        group = [choose.choice((torch.relu, torch.tanh, torch.sin, torch.cos, torch.neg)) for _ in range(11)]
        for _ in range(2):
            for function in group:
                x = function(x)
    return x


LARGE = {
    "flat": lambda: tl.trace(flat_function(2000), X),
    "calls": lambda: many_calls(300),
    "growing": lambda: tl.trace(growing(40), X),
}


@pytest.mark.parametrize("rolled", [False, True])
@pytest.mark.parametrize("name", LARGE)
def test_a_large_run_is_kept_readable_and_says_how_to_see_more(name: str, rolled: bool) -> None:
    picture = drawn(LARGE[name](), rolled=rolled)
    assert 1 < len(picture.nodes) <= MOST
    assert says_how_to_open_it(picture)


def test_many_groups_that_fold_into_several_nodes_each_are_kept_readable() -> None:
    picture = drawn(tl.trace(repeated_groups, X))
    assert 10 < len(picture.nodes) <= MOST
    assert says_how_to_open_it(picture)


@pytest.mark.parametrize(("name", "size"), [("resnet50", 64), ("vit_b_16", 224), ("swin_t", 64)])
def test_models_of_torchvision_are_kept_readable(name: str, size: int) -> None:
    import_torchvision()
    build = getattr(importlib.import_module("torchvision.models"), name)
    with torch.no_grad():
        trace = tl.trace(build(weights=None).eval(), torch.zeros(1, 3, size, size), save=[])
    for rolled in (False, True):
        picture = drawn(trace, rolled=rolled)
        assert 10 < len(picture.nodes) <= MOST
        assert says_how_to_open_it(picture) or any("×" in line for line in all_lines(picture))


def test_modules_deep_within_one_another_are_closed_from_the_inside() -> None:
    dot = tl.trace(deep(60), X).draw().dot  # too deep for pydot's parser
    assert 1 < len(re.findall(r"^n\d+ \[", dot, re.MULTILINE)) <= MOST
    assert re.search(r"opened to depth 5\d: depth=5\d opens more, a .html page all of it", dot)


def says_how_to_open_it(picture: Drawn) -> bool:
    return any(
        ("opens more" in line or "rolled=True" in line) and ".html page all of it" in line
        for line in picture.below
    )


def all_lines(picture: Drawn) -> list[str]:
    return [line for lines in (*picture.nodes.values(), *picture.clusters.values()) for line in lines]


def test_the_middle_of_a_long_row_is_left_out_and_counted() -> None:
    picture = drawn(tl.trace(flat_function(200), X))
    (rest,) = [lines for lines in picture.nodes.values() if "more ops" in lines[0]]
    assert rest[0] == "172 more ops"
    assert rest[1] == "add_8 ... add_65"
    assert len(picture.nodes) == 31
    assert any("the middle of long rows left out" in line for line in picture.below)


def test_a_small_run_is_drawn_whole_and_says_nothing() -> None:
    picture = drawn(traced("StackedBlocks"), fold=False)
    assert len(picture.nodes) == 14
    assert picture.below == ["StackedBlocks · 14 ops"]


def test_a_given_depth_is_kept_however_large_it_gets() -> None:
    picture = drawn(tl.trace(flat_function(200), X), depth=1)
    assert len(picture.nodes) == 202
    assert len(picture.below) == 1


def nested() -> nn.Module:
    return nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU(), nn.Tanh())), nn.Sigmoid())


@pytest.mark.parametrize(
    ("depth", "titles"),
    [
        (0, ["input_1", "Sequential", "output_1"]),
        (1, ["input_1", "0 Sequential", "1 Sigmoid", "output_1"]),
        (2, ["input_1", "0.0 Linear", "0.1 Sequential", "1 Sigmoid", "output_1"]),
        (3, ["input_1", "0.0 Linear", "0.1.0 ReLU", "0.1.1 Tanh", "1 Sigmoid", "output_1"]),
        (9, ["input_1", "0.0 Linear", "0.1.0 ReLU", "0.1.1 Tanh", "1 Sigmoid", "output_1"]),
    ],
)
def test_depth_opens_so_many_levels(depth: int, titles: list[str]) -> None:
    assert drawn(tl.trace(nested(), X), depth=depth).titles() == titles


@pytest.mark.parametrize("depth", [-1, True, 1.0, "1"])
def test_a_depth_that_is_none_is_refused(depth: Any) -> None:
    with pytest.raises(tl.errors.OptionError, match=r"depth is .*; give how many levels"):
        traced("Looped").draw(depth=depth)


def test_an_unknown_direction_is_refused() -> None:
    with pytest.raises(tl.errors.OptionError, match="direction='sideways' is none of 'down', 'right'"):
        traced("Looped").draw(direction="sideways")


@pytest.mark.parametrize(
    ("direction", "rankdir"), [("down", "TB"), ("right", "LR"), ("up", "BT"), ("left", "RL")]
)
def test_data_flows_in_the_direction_that_is_given(direction: Any, rankdir: str) -> None:
    assert drawn(traced("Looped"), direction=direction).rankdir == rankdir


# ---- focus ---------------------------------------------------------------------------------------


def test_focus_draws_a_module_and_what_it_is_linked_to() -> None:
    picture = drawn(traced("StackedBlocks"), focus="blocks.1")
    assert picture.titles() == [
        "blocks.0 ResidualBlock",
        "first Linear",
        "add_3",
        "second Linear",
        "add_4",
        "blocks.2 ResidualBlock",
    ]
    assert "only blocks.1 and what it is linked to" in picture.below


@pytest.mark.parametrize(("focus", "count"), [("block", 3), ("block:2", 1)])
def test_focus_takes_a_module_with_all_its_calls_or_one_call(focus: str, count: int) -> None:
    picture = drawn(traced("ReusedBlock"), focus=focus)
    assert sum(lines[1:] == ["ResidualBlock"] for lines in picture.clusters.values()) == count


def test_focus_on_the_root_draws_all() -> None:
    whole = drawn(traced("StackedBlocks"), fold=False)
    assert drawn(traced("StackedBlocks"), focus="", fold=False).nodes == whole.nodes


def test_focus_finds_a_module_that_is_all_there_is_in_another() -> None:
    picture = drawn(traced("SharedByTwoParents"), focus="left.inner")
    assert picture.titles() == ["input_1", "left Wrapper", "right Wrapper", "output_1"]


def test_focus_counts_levels_from_its_module() -> None:
    trace = tl.trace(nn.Sequential(nested(), nn.ReLU()), X)
    assert drawn(trace, focus="0", depth=1).titles() == ["input_1", "0.0 Sequential", "0.1 Sigmoid", "1 ReLU"]
    inner = drawn(trace, focus="0", depth=2).titles()
    assert inner == ["input_1", "0.0.0 Linear", "0.0.1 Sequential", "0.1 Sigmoid", "1 ReLU"]
    assert drawn(trace, focus="0", depth=0).titles() == drawn(trace, focus="0", depth=1).titles()


def test_focus_on_a_large_module_in_a_long_row_shows_that_module() -> None:
    length = flat_function(100)
    parts = {f"b{at}": nn.Linear(4, 4) if at % 2 else nn.ReLU() for at in range(40)}
    parts["b28"] = Runs(lambda self, x: length(x))

    def chained(self: Any, x: Tensor) -> Tensor:
        for part in self.children():
            x = part(x)
        return x

    picture = drawn(tl.trace(Runs(chained, **parts), X), focus="b28")
    assert ["b28", "Runs"] in picture.clusters.values()
    assert len(picture.nodes) <= MOST
    assert {"b29 Linear", "sin_1"} <= set(picture.titles())


@pytest.mark.parametrize(
    ("focus", "error", "message"),
    [
        ("blocks.7", tl.errors.MissingKeyError, "no module is called 'blocks.7'; nearest: 'blocks"),
        ("blocks", tl.errors.IncompleteError, "nothing of 'blocks' to draw: it was not called"),
        (3, tl.errors.InputError, "focus=3 names no module; give a module's address"),
    ],
)
def test_a_focus_that_cannot_be_drawn_is_refused(focus: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        traced("StackedBlocks").draw(focus=focus)


def test_focus_on_a_module_of_the_first_of_two_runs() -> None:
    one = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    other = nn.Sequential(*one, nn.Sequential(nn.Tanh(), nn.Sigmoid()))
    bundle = tl.Bundle({"a": tl.trace(one, X), "b": tl.trace(other, X)})
    picture = drawn(bundle, focus="1")
    assert picture.titles() == ["0 Linear", "1 ReLU", "2 Sequential", "output_1"]


def test_focus_on_what_feeds_hundreds_shows_the_first_and_last_of_them() -> None:
    class Hub(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hub = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

        def forward(self, x: Tensor) -> list[Tensor]:
            x = self.hub(x)
            return [torch.tanh(x) if at % 3 else torch.sin(x) for at in range(300)]

    picture = drawn(tl.trace(Hub(), X), focus="hub")
    assert 5 < len(picture.nodes) <= MOST
    assert "hub.0 Linear" in picture.titles()
