"""The tree of what ran: what stands where, and sums that agree with the ops they are of."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests import models
from tests.programs.examples import EXAMPLES, Example, floats
from torchlens.report.tree import Entry

UNSHOWN = ("input", "output", "buffer")


def tree_of(model: Any, *inputs: Any) -> Entry:
    return tl.trace(model, inputs).summary().tree


def trace_of(example: Example) -> tl.Trace:
    return tl.trace(example.build(), example.inputs(), input_kwargs=example.kwargs())


def outline(entry: Entry) -> list[Any]:
    """Names with their runs, nested as the tree is."""
    items = [outline(item) if item.items else f"{item.name} ×{item.runs}" for item in entry.items]
    return [f"{entry.name or entry.type} ×{entry.runs}", items]


@pytest.mark.parametrize(
    ("model", "inputs", "expected"),
    [
        pytest.param(
            models.Looped(),
            [floats(3, 4)],
            ["Looped ×1", ["tanh_1 ×3", "mul_1 ×3"]],
            id="a loop is one layer",
        ),
        pytest.param(
            models.Unrolled(),
            [floats(3, 4)],
            ["Unrolled ×1", ["tanh_1 ×1", "mul_1 ×1", "tanh_2 ×1", "mul_2 ×1"]],
            id="two lines are two layers",
        ),
        pytest.param(
            models.ReusedBlock(),
            [floats(3, 4)],
            [
                "ReusedBlock ×1",
                [
                    [
                        "block ×3",
                        [
                            ["first ×3", ["linear_1 ×3"]],
                            "add_1 ×3",
                            ["second ×3", ["linear_2 ×3"]],
                            "add_2 ×3",
                        ],
                    ]
                ],
            ],
            id="calls of one block are one entry",
        ),
        pytest.param(
            models.CallsItself(),
            [floats(3, 4)],
            ["CallsItself ×3", ["tanh_1 ×3", "mul_1 ×2"]],
            id="a module that calls itself is one entry",
        ),
        pytest.param(
            models.SharedByTwoParents(),
            [floats(3, 4)],
            [
                "SharedByTwoParents ×1",
                [
                    ["left ×1", [["inner ×1", ["linear_1 ×1"]]]],
                    ["right ×1", [["inner ×1", ["linear_1 ×1"]]]],
                ],
            ],
            id="a shared module stands at both places",
        ),
    ],
)
def test_outline(model: nn.Module, inputs: list[Tensor], expected: list[Any]) -> None:
    (root,) = tree_of(model, *inputs).items
    assert outline(root) == expected


def test_addresses_are_told_from_the_caller() -> None:
    (root,) = tree_of(models.StackedBlocks(), floats(3, 4)).items
    assert [item.name for item in root.items] == ["blocks.0", "blocks.1", "blocks.2"]
    assert [item.name for item in root.items[1].items if item.is_module] == ["first", "second"]


def test_a_shared_module_is_marked_where_it_stands_again() -> None:
    (root,) = tree_of(models.SharedByTwoParents(), floats(3, 4)).items
    left, right = (outer.items[0] for outer in root.items)
    assert (left.repeats, right.repeats) == ("", "left.inner")
    assert (left.runs, left.all_runs) == (1, 2)
    assert (left.amounts.params, right.amounts.params, right.all_params) == (20, 0, 20)


def test_a_shared_module_is_found_by_the_names_that_lead_to_it() -> None:
    shared = nn.Linear(4, 4)
    around = nn.Sequential(shared)
    with tl.capture({"a": shared}) as trace:
        shared(around(floats(2, 4)))
    again = trace.summary().tree.items[-1]
    assert (again.name, again.repeats) == ("a", "Sequential_1.0")


def test_tied_weights_count_once() -> None:
    (root,) = tree_of(models.TiedWeights(), torch.tensor([[1, 2, 3]])).items
    embed, head = root.items
    assert root.amounts.params == embed.amounts.params == 28
    assert (head.amounts.params, head.all_params) == (0, 28)


def test_further_outputs_join_the_first() -> None:
    def split(x: Tensor) -> Tensor:
        first, second = x.chunk(2)
        return first + second

    chunk, add = tree_of(split, floats(4, 3)).items
    assert (chunk.name, chunk.more_outputs, str(chunk.shape)) == ("chunk_1", ["chunk_2"], "2×3")
    assert (add.name, add.amounts.flops) == ("add_1", 6)


def test_hand_arithmetic() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2, bias=False))
    (root,) = tree_of(model, floats(3, 4)).items
    first, relu, second = root.items
    assert [item.amounts.flops for item in root.items] == [3 * 4 * 8 * 2, 3 * 8, 3 * 8 * 2 * 2]
    assert [item.amounts.params for item in root.items] == [4 * 8 + 8, 0, 16]
    assert root.amounts.flops == 192 + 24 + 96
    assert root.amounts.params == 56
    assert [str(item.shape) for item in (first, relu, second, root)] == ["3×8", "3×8", "3×2", "3×2"]


def test_shapes_of_several_passes_are_a_range() -> None:
    model = nn.Linear(4, 2)
    with tl.capture(model) as trace:
        for rows in (3, 1, 2):
            model(floats(rows, 4))
    root = next(item for item in trace.summary().tree.items if item.is_module)
    assert str(root.shape) == str(root.items[0].shape) == "1..3×2"


def test_a_module_that_raises_is_marked_and_only_the_innermost() -> None:
    model = nn.Sequential(nn.ReLU(), nn.Sequential(nn.Linear(4, 3), nn.Linear(4, 3)))
    with pytest.raises(RuntimeError, match="cannot be multiplied"), tl.capture(model) as trace:
        model(floats(2, 4))
    marks = {item.type: item.mark for item in trace.summary().tree.walk() if item.is_module and item.mark}
    assert marks == {"Linear": "raised here"}


def test_what_runs_outside_modules_stands_at_the_top() -> None:
    model = nn.Linear(4, 4)
    x = floats(2, 4)
    with tl.capture(model) as trace:
        for _ in range(2):
            x = model(x) + 1
    top = trace.summary().tree
    assert [(item.name or item.type, item.runs) for item in top.items] == [("Linear", 2), ("add_1", 2)]
    assert top.amounts.params == 20


def test_alike_is_what_differs_in_names_and_weights_only() -> None:
    wide = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4, bias=False), nn.Linear(4, 5))
    (root,) = tree_of(wide, floats(2, 4)).items
    alike = [item.alike for item in root.items]
    assert alike[0] == alike[1]
    assert len(set(alike)) == 3
    assert len({item.kin for item in root.items}) == 1


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_pass_stands_in_the_tree_once(name: str) -> None:
    trace = trace_of(EXAMPLES[name])
    passes: Counter[str] = Counter()
    for entry in trace.summary().tree.walk():
        if not entry.is_module:
            passes[entry.name] += entry.runs
    layers = [layer for layer in trace.layers if layer.ops[0].kind not in UNSHOWN]
    assert passes == {ops[0].layer.layer_label: len(ops) for layer in layers if (ops := first_outputs(layer))}


def first_outputs(layer: Any) -> list[Any]:
    return [op for op in layer.ops if op.output_slot == 0]


@pytest.mark.parametrize("name", EXAMPLES)
def test_sums_agree_with_the_ops(name: str) -> None:
    trace = trace_of(EXAMPLES[name])
    top = trace.summary().tree
    counted = [op for op in trace.ops if op.output_slot == 0]
    assert top.amounts.flops == sum(op.flops or 0 for op in counted)
    assert top.amounts.uncounted == sum(op.flops is None for op in counted)
    assert top.amounts.nanoseconds == sum(op.duration_ns or 0 for op in counted)
    assert top.amounts.params == sum(param.numel for param in trace.params)


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_module_is_the_sum_of_its_items(name: str) -> None:
    for entry in trace_of(EXAMPLES[name]).summary().tree.walk():
        if not entry.is_module:
            continue
        assert entry.amounts.flops == sum(item.amounts.flops for item in entry.items)
        assert entry.amounts.uncounted == sum(item.amounts.uncounted for item in entry.items)
        assert entry.amounts.nanoseconds == sum(item.amounts.nanoseconds for item in entry.items)
        assert entry.amounts.params >= sum(item.amounts.params for item in entry.items)
        assert entry.amounts.params <= entry.all_params


@pytest.mark.parametrize("name", EXAMPLES)
def test_module_calls_stand_in_the_tree_once(name: str) -> None:
    trace = trace_of(EXAMPLES[name])
    runs: Counter[int] = Counter()
    for entry in trace.summary().tree.items:
        for item in entry.walk():
            if item.is_module:
                runs[item.index] += item.runs
    assert runs == {module.index: module.num_calls for module in trace.modules if module.num_calls}
