"""What `color_by=` takes, and what is told of it."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import torchlens as tl
from tests.drawing.reading_dot import Drawn
from tests.drawing.traces import drawn, traced
from torchlens.drawing.quantities import quantity_of

WHITE = "#ffffff"
LEAST, MOST = "#f4f8fd", "#0b3f77"


def by(value: Any) -> Drawn:
    """A chain of input, four ops and output, colored by a function or one value."""
    trace = tl.trace(nn.Sequential(nn.ReLU(), nn.Tanh(), nn.Sigmoid(), nn.Softplus()), torch.ones(3, 4))
    return drawn(trace, color_by=value if callable(value) else lambda op: value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        (-2.5, "-2.5"),
        (0, "0"),
        (1e-9, "1e-09"),
        (123456.0, "1.235e+05"),
        (True, "yes"),
        (False, "no"),
        ("a word", "a word"),
        ("<b>&", "<b>&"),
        (torch.tensor(2.5), "2.5"),
        (torch.tensor([4]), "4"),
        (torch.ones(1, 1), "1"),
        (torch.ones((), requires_grad=True), "1"),
    ],
)
def test_numbers_and_words_stand_on_each_node_and_in_the_legend(value: Any, text: str) -> None:
    picture = by(value)
    assert all(text in lines for lines in picture.nodes.values())
    assert text in picture.below


@pytest.mark.parametrize("value", [None, math.nan, math.inf, torch.tensor(math.nan), 10**400])
def test_what_is_not_known_is_white_and_told(value: Any) -> None:
    picture = by(value)
    assert set(picture.colors.values()) == {WHITE}
    assert picture.below[-1] == "not known"


@pytest.mark.parametrize("value", [[1], {"a": 1}, torch.ones(2), 1j, object()])
def test_anything_else_is_refused(value: Any) -> None:
    kind = type(value).__name__
    with pytest.raises(tl.errors.OptionError, match=rf"color_by gave {kind} for .*; it is to give a number"):
        by(value)


def test_a_meta_tensor_has_no_value() -> None:
    with pytest.raises(tl.errors.OptionError, match="color_by gave a meta tensor for input_1:1"):
        by(torch.ones((), device="meta"))


@pytest.mark.parametrize("value", [True, torch.tensor(True), np.bool_(True)])
def test_truth_is_told_as_yes(value: Any) -> None:
    assert by(value).below[-1] == "yes"


def test_a_sum_that_no_float_can_hold_is_not_known() -> None:
    trace = tl.trace(nn.Sequential(nn.ReLU(), nn.Tanh()), torch.ones(3, 4))
    assert drawn(trace, depth=0, color_by=lambda op: 1.5e308).below[-1] == "not known"


def test_reading_the_number_of_a_tensor_is_no_op_of_the_block_around() -> None:
    trace, value = tl.trace(torch.sin, torch.ones(3)), torch.ones((), requires_grad=True)
    with tl.capture(nn.ReLU()) as block:
        trace.draw(color_by=lambda op: value)
    assert [op.label for op in block.ops if op.kind == "call"] == []


@pytest.mark.parametrize("given", ["speed", 3, ["flops"]])
def test_what_is_no_quantity_is_refused(given: Any) -> None:
    with pytest.raises(tl.errors.OptionError, match=r"color_by is .*; it is one of 'time', 'flops', 'bytes'"):
        traced("Looped").draw(color_by=given)


def test_the_error_of_a_function_comes_through() -> None:
    with pytest.raises(ZeroDivisionError, match="division by zero"):
        by(lambda op: 1 / 0)


def test_the_scale_goes_from_zero_to_the_greatest() -> None:
    picture = by(lambda op: op.index)
    assert picture.colors[picture.node("input_1")] == LEAST
    assert picture.colors[picture.node("output_1")] == MOST
    assert picture.below[1:] == ["value", "0", "1.25", "2.5", "3.75", "5"]


def test_the_scale_begins_at_the_least_where_that_is_negative() -> None:
    picture = by(lambda op: op.index - 3)
    assert picture.colors[picture.node("input_1")] == LEAST
    assert picture.below[2:] == ["-3", "-1.75", "-0.5", "0.75", "2"]


def test_a_function_gives_the_legend_its_name() -> None:
    def depth_of_op(op: Any) -> int:
        return 1

    assert by(depth_of_op).below[1] == "depth_of_op"


def test_each_word_has_its_color_and_further_words_are_counted() -> None:
    few = by(lambda op: op.type)
    assert len(set(few.colors.values())) == len(few.nodes) == 6
    trace = tl.trace(nn.Sequential(*(nn.Linear(4, 4) for _ in range(20))), torch.ones(3, 4))
    many = drawn(trace, color_by=lambda op: f"{op.label}!", fold=False)
    assert many.below[-1] == "10 more words, in the same colors"
    assert many.below[2:4] == ["input_1:1!", "linear_1:1!"]


def test_a_function_is_asked_once_for_an_op() -> None:
    asked: list[str] = []
    by(lambda op: asked.append(op.label))
    assert sorted(asked) == sorted(set(asked))


def test_words_that_change_at_each_asking_are_drawn() -> None:
    count = itertools.count()
    assert len(by(lambda op: f"word {next(count)}").nodes) == 6


def test_a_closed_module_has_the_sum_of_what_is_named_and_the_mean_of_what_is_not() -> None:
    trace = tl.trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.ones(3, 4))
    assert "108 FLOPs" in next(iter(all_closed(trace, "flops")))
    assert "2.5" in next(iter(all_closed(trace, lambda op: {"linear": 1, "relu": 4}.get(op.type))))
    assert "linear, relu" in next(iter(all_closed(trace, lambda op: op.type)))
    mixed = all_closed(trace, lambda op: 1 if op.type == "linear" else op.type)
    assert "1, relu" in next(iter(mixed))


def all_closed(trace: Any, color_by: Any) -> list[list[str]]:
    picture = drawn(trace, depth=0, color_by=color_by)
    return [lines for lines in picture.nodes.values() if lines[0] == "Sequential"]


def test_folded_modules_have_the_sum_of_all() -> None:
    trace = tl.trace(nn.Sequential(*(nn.Linear(4, 4) for _ in range(10))), torch.ones(3, 4))
    picture = drawn(trace, color_by="flops")
    assert "960 FLOPs" in picture.nodes[picture.node("×10")]


def test_many_words_of_one_node_are_counted() -> None:
    trace = tl.trace(nn.Sequential(*(nn.Linear(4, 4) for _ in range(30))), torch.ones(3, 4))
    ((_, text, *_),) = all_closed(trace, lambda op: op.label)
    assert text == "linear_1:1, linear_2:1, linear_3:1 and 27 more"


@pytest.mark.parametrize("name", ["time", "flops", "bytes"])
def test_named_quantities_color_every_op_that_has_one(name: str) -> None:
    trace = traced("StackedBlocks")
    quantity = quantity_of(name)  # type: ignore[arg-type]
    known = {"time": "duration_ns", "flops": "flops", "bytes": "nbytes"}[name]
    assert [quantity.of_ops([op]) for op in trace.ops] == [getattr(op, known) for op in trace.ops]
    picture = drawn(trace, color_by=name)
    assert name in picture.below


def test_white_is_written_on_dark_colors() -> None:
    dot = tl.trace(nn.ReLU(), torch.ones(3, 4)).draw(color_by=lambda op: op.index).dot
    (line,) = [line for line in dot.splitlines() if MOST in line and line.startswith("n")]
    assert 'COLOR="#ffffff"' in line and "#1b2733" not in line
