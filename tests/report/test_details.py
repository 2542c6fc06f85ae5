"""One op, one layer, in full."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchlens as tl
from tests import models
from tests.programs.examples import EXAMPLES, floats
from torchlens.report.details import Details, layer_details, op_details
from torchlens.report.text import as_text


class Steps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = torch.tanh(self.linear(x))
        return x


def facts_of(details: Details) -> dict[str, str]:
    """Facts by name, lines of one fact joined."""
    facts: dict[str, str] = {}
    name = ""
    for head, text in details.facts:
        name = head or name
        facts[name] = f"{facts[name]} | {text}" if name in facts else text
    return facts


def test_an_op_of_a_loop() -> None:
    details = op_details(tl.trace(Steps(), floats(2, 4)).ops["tanh_1:2"])
    facts = facts_of(details)
    assert (details.name, details.about) == ("tanh_1:2", "call, pass 2 of 3")
    assert facts.pop("cost").endswith(", 8 FLOPs")
    assert facts.pop("called at").startswith("test_details.py:")
    assert facts == {
        "function": "tanh",
        "module": "the root (Steps)",
        "value": "2×4 float32 cpu, requires grad",
        "arguments": "(linear_1:2)",
        "parents": "linear_1:2",
        "children": "linear_1:3",
    }


def test_the_root_called_twice() -> None:
    model, x = Steps(), floats(2, 4)
    with tl.capture(model) as trace:
        model(model(x))
    assert facts_of(op_details(trace.ops["tanh_1:5"]))["module"] == "the root (Steps), call :2"
    assert facts_of(op_details(trace.ops["linear_1:5"]))["module"] == "linear:5 (Linear)"
    assert facts_of(layer_details(trace.layers["tanh_1"]))["module"] == "the root (Steps)"


def test_the_line_of_code_is_shown() -> None:
    details = op_details(tl.trace(Steps(), floats(2, 4)).ops["tanh_1:1"])
    assert facts_of(details)["called at"].endswith("in Steps.forward: x = torch.tanh(self.linear(x))")


def test_a_function_reached_through_another() -> None:
    class Normalizes(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.normalize(x)

    facts = facts_of(op_details(tl.trace(Normalizes(), floats(2, 4)).ops["truediv_1:1"]))
    assert facts["function"] == "__truediv__, through normalize"
    assert len(facts["called at"].split(" | ")) == 2


def test_a_namesake_that_called_a_function_says_nothing() -> None:
    op = tl.trace(lambda x: F.softmax(x, -1), floats(2, 4)).ops["softmax_1:1"]
    assert op.composites == ("softmax",)
    assert facts_of(op_details(op))["function"] == "softmax"


def test_parameters_and_their_shapes() -> None:
    facts = facts_of(op_details(tl.trace(nn.Linear(4, 2), floats(3, 4)).ops["linear_1:1"]))
    assert facts["parameters"] == "weight 2×4, bias 2"
    assert facts["arguments"] == "(input_1:1, weight, bias)"


def test_buffers_and_writes() -> None:
    trace = tl.trace(nn.BatchNorm1d(3).train(), floats(4, 3))
    facts = facts_of(op_details(trace.ops["batch_norm_1:1"]))
    assert facts["buffers"] == "running_mean, running_var"
    added = facts_of(op_details(trace.ops["add_1:1"]))
    assert added["value"] == "scalar int64 cpu, written in place"
    assert facts_of(op_details(trace.ops["buffer_1:1"]))["name"] == "num_batches_tracked"


def test_reads_and_unknown_cost() -> None:
    def reads(x: Tensor) -> Tensor:
        total = x.sum()
        return x.unique() * total.item()

    trace = tl.trace(reads, floats(3))
    assert facts_of(op_details(trace.ops["sum_1:1"]))["read as"] == "item"
    unique = next(layer for layer in trace.layers if layer.type.startswith("unique"))
    assert "FLOPs not known: " in facts_of(op_details(unique.ops[0]))["cost"]


def test_a_value_that_was_changed_says_so() -> None:
    trace = tl.trace(nn.ReLU(), floats(3))
    trace["relu_1"].out.zero_()
    assert "was changed in place" in facts_of(op_details(trace.ops["relu_1:1"]))["value"]


def test_long_arguments_are_cut() -> None:
    facts = facts_of(op_details(tl.trace(lambda x: x.repeat(*([1] * 99)), floats(3)).ops["repeat_1:1"]))
    assert len(facts["arguments"]) <= 200
    assert facts["arguments"].endswith("…)")


def test_a_layer_lists_its_passes() -> None:
    details = layer_details(tl.trace(Steps(), floats(2, 4)).layers["linear_1"])
    facts = facts_of(details)
    assert details.about == "layer, 3 passes"
    assert [line.rpartition(", ")[0] for line in facts["passes"].split(" | ")] == [
        "linear_1:1 2×4 from input_1:1",
        "linear_1:2 2×4 from tanh_1:1",
        "linear_1:3 2×4 from tanh_1:2",
    ]
    assert facts["module"] == "linear (Linear)"
    assert facts["parents"] == "input_1, tanh_1"
    assert facts["parameters"] == "linear.weight 4×4, linear.bias 4"


def test_a_layer_of_one_pass_shows_its_op() -> None:
    layer = tl.trace(models.Unrolled(), floats(3, 4)).layers["tanh_2"]
    assert layer_details(layer).facts == op_details(layer.ops[0]).facts
    assert layer_details(layer).name == "tanh_2"


def test_many_passes_are_counted() -> None:
    def loop(x: Tensor) -> Tensor:
        for _ in range(20):
            x = torch.sin(x)
        return x

    passes = facts_of(layer_details(tl.trace(loop, floats(2)).layers["sin_1"]))["passes"].split(" | ")
    assert len(passes) == 9
    assert passes[-1] == "and 12 more"


def test_printing_an_op_or_a_layer_gives_its_details() -> None:
    trace = tl.trace(Steps(), floats(2, 4))
    pages = {
        "tanh_1:2": (trace.ops["tanh_1:2"], op_details),
        "linear_1": (trace.layers["linear_1"], layer_details),
    }
    for title, (thing, details) in pages.items():
        assert thing.title == title
        assert str(thing) == str(details(thing)) != title
        assert str(thing).startswith(f"{title} · ")
        assert thing._repr_html_() == details(thing)._repr_html_()


@pytest.mark.parametrize("name", EXAMPLES)
def test_everything_can_be_printed(name: str) -> None:
    example = EXAMPLES[name]
    trace = tl.trace(example.build(), example.inputs(), input_kwargs=example.kwargs())
    things: list[Any] = [*map(op_details, trace.ops), *map(layer_details, trace.layers)]
    for details in things:
        text = as_text(details, 80)
        assert text.startswith(details.name)
        assert max(map(len, text.splitlines())) <= 80
        assert "\x1b" not in text
        assert details._repr_html_().startswith("<pre")
