"""`Trace.draw` and `Bundle.draw`: one text for one run, which holds nothing of it."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchlens as tl
from tests import models
from tests.drawing.traces import drawn, traced
from tests.programs.examples import EXAMPLES, floats


def fresh(name: str) -> Any:
    torch.manual_seed(0)
    example = EXAMPLES[name]
    return tl.trace(example.build(), example.inputs(), input_kwargs=example.kwargs())


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_loaded_trace_and_a_second_one_are_drawn_alike(name: str, tmp_path: Path) -> None:
    trace, second = traced(name), fresh(name)
    tl.save(trace, tmp_path / "run")
    loaded = tl.load(tmp_path / "run")
    for options in ({}, {"rolled": True}, {"depth": 1}, {"color_by": "flops"}):
        text = trace.draw(**options).dot
        assert loaded.draw(**options).dot == text
        assert second.draw(**options).dot == text


def test_a_file_without_parameters_tells_how_many_there_were(tmp_path: Path) -> None:
    tl.save(traced("StackedBlocks"), tmp_path / "run")
    assert "120 params" in " ".join(drawn(tl.load(tmp_path / "run"), depth=0).nodes["n1"])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"rolled": True},
        {"color_by": "flops"},
        {"color_by": lambda op: op.index},
        {"hide": tl.func("tanh")},
        {"collapse": lambda module: True},
        {"focus": ""},
    ],
)
def test_a_picture_keeps_nothing_of_the_run_alive(options: dict[str, Any]) -> None:
    trace = fresh("Looped")
    value = weakref.ref(trace.ops[1].out)
    picture = trace.draw(**options)
    assert value() is not None
    gc.disable()
    try:
        died = weakref.ref(trace)
        del trace
        assert died() is None
        assert value() is None
    finally:
        gc.enable()
    assert "tanh" in picture.dot or options


def test_drawing_changes_nothing_of_the_trace() -> None:
    trace = fresh("ReusedBlock")
    before = str(trace.summary()), sorted(trace.graph.edges)
    trace.draw(rolled=True, hide=tl.func("add"), color_by="flops")
    assert (str(trace.summary()), sorted(trace.graph.edges)) == before


def test_modules_in_which_no_op_runs_are_not_drawn() -> None:
    inner = nn.Sequential(nn.Identity(), nn.Linear(4, 4), nn.ReLU())
    trace = tl.trace(nn.Sequential(nn.Identity(), inner, nn.Identity()), torch.ones(3, 4))
    for rolled in (False, True):
        picture = drawn(trace, rolled=rolled)
        assert picture.titles() == ["input_1", "1.1 Linear", "1.2 ReLU", "output_1"]
        assert [lines[0] for lines in picture.clusters.values()] == ["Sequential", "1"]
    with pytest.raises(tl.errors.IncompleteError, match=r"nothing of '0' to draw: .* no op ran in it"):
        trace.draw(focus="0")


def test_rolled_a_module_whose_ops_stand_in_another_has_no_cluster() -> None:
    shared = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    second = nn.Sequential(models.Wrapper(shared), nn.Tanh())
    trace = tl.trace(nn.Sequential(models.Wrapper(shared), second, nn.Sigmoid()), torch.ones(3, 4))
    picture = drawn(trace, rolled=True)
    assert picture.titles() == [
        "input_1",
        "inner.0 Linear",
        "inner.1 ReLU",
        "1 Sequential",
        "2 Sigmoid",
        "output_1",
    ]
    assert all(name in picture.cluster_of.values() for name in picture.clusters)


# ---- runs that did not end, that kept little, that are no single model ---------------------------


def test_a_failed_run_is_drawn_as_far_as_it_came() -> None:
    model, x = models.Raises(ValueError("no")), floats(3, 4)
    with pytest.raises(ValueError, match="no"), tl.capture(model) as trace:
        model(x)
    picture = drawn(trace)
    assert picture.titles() == ["input_1", "linear Linear", "inner Thrower"]
    assert picture.below == ["Raises · 3 ops · failed", "raised ValueError: no"]


def test_a_halted_run_is_drawn_as_far_as_it_came() -> None:
    trace = tl.trace(models.StackedBlocks(), floats(3, 4), stop_after="blocks.0.second")
    picture = drawn(trace)
    assert picture.titles() == ["input_1", "first Linear", "add_1", "second Linear"]
    assert picture.below == ["StackedBlocks · 4 ops · halted"]
    assert drawn(trace, depth=0).titles() == ["input_1", "StackedBlocks"]


@pytest.mark.parametrize("name", ["StackedBlocks", "normalized_convolution", "WritesThroughViews", "LSTM"])
def test_values_are_not_needed(name: str) -> None:
    example = EXAMPLES[name]
    torch.manual_seed(0)
    trace = tl.trace(example.build(), example.inputs(), save=[])
    for options in ({}, {"rolled": True}, {"depth": 0}, {"color_by": "bytes"}):
        assert trace.draw(**options).dot == traced(name).draw(**options).dot


def test_a_block_with_several_models_has_a_cluster_for_each() -> None:
    one, other = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Sequential(nn.Tanh(), nn.Sigmoid())
    x = floats(3, 4)
    with tl.capture({"one": one, "other": other}) as trace:
        y = other(one(x) * 2)
        one(y)
    picture = drawn(trace)
    assert list(picture.clusters.values()) == [
        ["one:1", "Sequential"],
        ["other", "Sequential"],
        ["one:2", "Sequential"],
    ]
    assert picture.node("mul_1")
    beside = drawn(trace, focus="other").titles()
    assert beside == ["mul_1", "other.0 Tanh", "other.1 Sigmoid", "output_2", "one:2 Sequential"]


def test_a_function_without_a_module_has_no_cluster() -> None:
    assert drawn(tl.trace(torch.relu, floats(3, 4))).clusters == {}


# ---- two runs ------------------------------------------------------------------------------------


def test_a_bundle_of_two_needs_no_names_and_one_of_three_does() -> None:
    trace = traced("Looped")
    assert (
        tl.Bundle({"a": trace, "b": trace}).draw().dot
        == tl.Bundle({"a": trace, "b": trace}).draw(None, "a", "b").dot
    )
    with pytest.raises(
        tl.errors.InputError, match="two runs are drawn, and this bundle has 3: 'a', 'b', 'c'"
    ):
        tl.Bundle({"a": trace, "b": trace, "c": trace}).draw()


def test_two_equal_runs_are_drawn_in_white() -> None:
    trace = traced("StackedBlocks")
    picture = drawn(tl.Bundle({"a": trace, "b": trace}), fold=False)
    assert set(picture.colors.values()) == {"#ffffff"}
    assert all(lines[-1] == "equal" for lines in picture.nodes.values())


def test_folded_and_closed_nodes_of_two_runs_tell_the_greatest_difference() -> None:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(5)))
    before = tl.trace(model, floats(3, 4))
    with torch.no_grad():
        model[3][0].weight.mul_(2)
    bundle = tl.Bundle({"before": before, "after": tl.trace(model, floats(3, 4))})
    folded = drawn(bundle)
    lines = folded.nodes[folded.node("linear_1")]
    assert any(line.startswith("up to ") for line in lines)
    assert "equal" not in lines
    closed = drawn(bundle, depth=1, fold=False)
    apart = [lines[0] for lines in closed.nodes.values() if lines[1].startswith("up to ")]
    assert apart == ["3 Sequential", "4 Sequential"]


def test_a_picture_of_two_runs_keeps_neither_alive() -> None:
    traces = [fresh("Looped"), fresh("Looped")]
    values = [weakref.ref(trace.ops[1].out) for trace in traces]
    bundle = tl.Bundle(dict(zip("ab", traces)))
    picture = bundle.draw()
    gc.disable()
    try:
        del traces, bundle
        assert [value() for value in values] == [None, None]
    finally:
        gc.enable()
    assert "tanh" in picture.dot


def test_modules_without_ops_are_not_drawn_of_two_runs_either() -> None:
    one = nn.Sequential(nn.Identity(), nn.Linear(4, 4), nn.ReLU())
    other = nn.Sequential(one[1], nn.Identity(), one[2])
    bundle = tl.Bundle({"a": tl.trace(one, floats(3, 4)), "b": tl.trace(other, floats(3, 4))})
    assert all("Identity" not in line for lines in drawn(bundle).nodes.values() for line in lines)


def test_statistics_are_of_pages_and_can_be_left_out(tmp_path: Path) -> None:
    trace = traced("StackedBlocks")
    sizes = []
    for statistics in (True, False):
        trace.draw(tmp_path / "page.html", statistics=statistics)
        sizes.append((tmp_path / "page.html").stat().st_size)
    assert sizes[0] > sizes[1]
    with pytest.raises(tl.errors.OptionError, match=r"statistics=False is for .html pages"):
        trace.draw(statistics=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"program": "neato"}, "program='neato' is none of 'graphviz-pure', 'dot'"),
        ({"time_limit": -1}, "time_limit is a number of seconds above 0"),
        ({"rolled": "no"}, "rolled is 'no'; give True or False"),
        ({"path": "picture.jpg"}, "'picture.jpg' ends in no form of a picture"),
    ],
)
def test_options_are_checked_before_anything_is_drawn(options: dict[str, Any], message: str) -> None:
    with pytest.raises(tl.errors.OptionError, match=message):
        traced("Looped").draw(**options)


def test_two_runs_are_named_where_there_are_more() -> None:
    trace = traced("Looped")
    pair, three = tl.Bundle({"a": trace, "b": trace}), tl.Bundle({"a": trace, "b": trace, "c": trace})
    assert pair.draw() == pair.draw(None, "a", "b") == three.draw(a="a", b="b")
    with pytest.raises(tl.errors.InputError, match="this bundle has 3: 'a', 'b', 'c'; name two"):
        three.draw()
    with pytest.raises(tl.errors.InputError, match="only one run is named; name both of 'a', 'b'"):
        pair.draw(None, "a")
