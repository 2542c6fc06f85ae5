"""The words on nodes and arrows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchlens as tl
from tests import models
from tests.drawing.traces import Runs, drawn, traced
from tests.programs.examples import floats


def lines_of(trace: Any, word: str, **options: Any) -> list[str]:
    picture = drawn(trace, **options)
    return picture.nodes[picture.node(word)]


def test_inputs_and_outputs_have_the_names_that_the_code_gives_them() -> None:
    picture = drawn(traced("TakesNestedInput"))
    inputs = [lines for lines in picture.nodes.values() if lines[0].startswith("input_")]
    assert [lines[1] for lines in inputs] == [op.name for op in traced("TakesNestedInput").inputs]
    assert ["input_4", "scale", "4 float32"] in inputs
    outputs = drawn(traced("GivesDict")).nodes.values()
    assert [lines[1] for lines in outputs if lines[0].startswith("output_")] == ['["a"]', '["b"][0]']


def test_parameters_and_buffers_are_told_relative_to_their_module() -> None:
    trace = traced("normalized_convolution")
    line = "weight 4, bias 4, running_mean 4, running_var 4"
    assert line in lines_of(trace, "batch_norm_1")
    assert "scale 4" in lines_of(traced("BareParameter"), "mul_1")
    assert "embed.weight 7×4" in lines_of(traced("TiedWeights"), "head")


def test_many_parameters_are_counted() -> None:
    lines = lines_of(tl.trace(nn.LSTM(4, 3, num_layers=2), floats(5, 2, 4)), "lstm_1")
    assert lines[-1] == "weight_ih_l0 12×4, weight_hh_l0 12×3 and 6 more"


def test_a_long_name_is_shortened_in_its_middle_and_whole_in_the_tooltip() -> None:
    name = "part" * 40
    picture = drawn(
        tl.trace(Runs(lambda self, x: getattr(self, name)(x) + 1, **{name: nn.ReLU()}), floats(3, 4))
    )
    (node,) = [node for node, lines in picture.nodes.items() if "relu_1" in lines]
    title = picture.nodes[node][0]
    assert title.endswith(" ReLU") and "…" in title and len(title) < 70
    assert name in picture.tooltips[node]


def nested() -> Tensor:
    return torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)])


def quantized() -> Tensor:
    return torch.quantize_per_tensor(torch.ones(3, 4), 0.1, 0, torch.qint8)


TENSORS = {
    "scalar": (lambda: torch.tensor(1.0), "scalar float32"),
    "empty": (lambda: torch.ones(0, 3), "0×3 float32"),
    "bfloat16": (lambda: torch.ones(2, dtype=torch.bfloat16), "2 bfloat16"),
    "complex": (lambda: torch.ones(2, dtype=torch.complex64), "2 complex64"),
    "sparse": (lambda: torch.eye(3).to_sparse(), "3×3 float32"),
    "csr": (lambda: torch.eye(3).to_sparse_csr(), "3×3 float32"),
    "nested": (nested, "varies float32"),
    "meta": (lambda: torch.ones(2, 3, device="meta"), "2×3 float32"),
}


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's own, of sparse and nested tensors
@pytest.mark.parametrize("kind", TENSORS)
def test_tensors_of_every_kind_have_their_shape_and_dtype(kind: str) -> None:
    make, text = TENSORS[kind]
    trace = tl.trace(lambda x: x.clone(), make())
    for options in ({}, {"rolled": True}, {"color_by": "bytes"}):
        picture = drawn(trace, **options)
        assert text in picture.nodes[picture.node("clone_1")]
        assert text.split()[0] in picture.arrows[0].label


@pytest.mark.filterwarnings("ignore:.*uantiz")
def test_quantized_tensors_have_their_dtype() -> None:
    trace = tl.trace(lambda x: torch.dequantize(x), quantized())
    assert "3×4 qint8" in lines_of(trace, "input_1")
    assert "3×4 float32" in lines_of(trace, "dequantize_1")


def test_arguments_are_named_where_there_are_several() -> None:
    def combine(x: Tensor) -> Tensor:
        y = x * 2
        z = torch.where(y > 0, y, x)
        return torch.cat([z, y]) + F.linear(z, y, x[:, 0]).sum()

    picture = drawn(tl.trace(combine, floats(3, 3)))
    labels = {(a, b): arrow.label for (a, b), arrow in zip(picture.ends(), picture.arrows)}
    assert labels["input_1", "mul_1"] == "3×3"
    assert labels["gt_1", "where_1"] == "condition 3×3"
    assert labels["mul_1", "where_1"] == "self 3×3"
    assert labels["input_1", "where_1"] == "other 3×3"
    assert labels["where_1", "cat_1"] == "tensors[0] 3×3"
    assert labels["mul_1", "linear_1"] == "weight 3×3"
    assert labels["getitem_1", "linear_1"] == "bias 3"
    assert labels["sum_1", "add_1"] == "other scalar"


def test_a_rolled_layer_tells_its_passes_and_the_range_of_its_shapes() -> None:
    lines = lines_of(traced("CachesKeys"), "sum_1", rolled=True)
    assert lines[0] == "sum_1 ×3"
    picture = drawn(traced("CachesKeys"), rolled=True)
    (arrow,) = [arrow for arrow in picture.arrows if arrow.target == picture.node("sum_1")]
    assert arrow.label == "1..3×4"


def test_layers_of_several_dtypes_tell_each() -> None:
    def cast(x: Tensor) -> Tensor:
        for dtype in (torch.float64, torch.float16):
            x = x.to(dtype)
        return x

    assert "3×4 float64, float16" in lines_of(tl.trace(cast, floats(3, 4)), "to_1", rolled=True)


def test_what_went_through_numbers_is_dotted() -> None:
    picture = drawn(traced("ReadsValues"))
    dotted = {ends for ends, arrow in zip(picture.ends(), picture.arrows) if arrow.style == "dotted"}
    assert dotted
    assert all(arrow.style in ("solid", "dotted") for arrow in picture.arrows)


def test_the_tooltip_tells_the_call_and_where_it_was_written() -> None:
    picture = drawn(tl.trace(models.Looped(), floats(3, 4)))
    tooltip = picture.tooltips[picture.node("tanh_1:1")].splitlines()
    assert tooltip[0] == "tanh_1:1: tanh"
    assert tooltip[1].startswith("models.py:") and tooltip[1].endswith(" in Looped.forward")


def test_a_module_with_one_op_is_drawn_as_that_op() -> None:
    assert lines_of(traced("StackedBlocks"), "linear_1", fold=False) == [
        "first Linear",
        "linear_1",
        "3×4 float32",
        "weight 4×4, bias 4",
    ]


def test_calls_of_a_module_are_numbered_where_there_are_several() -> None:
    titles = [lines[0] for lines in drawn(traced("ReusedBlock")).clusters.values()]
    assert titles == ["ReusedBlock", "block:1", "block:2", "block:3"]
    clusters = drawn(traced("ReusedBlock"), rolled=True).clusters.values()
    assert ["block", "ResidualBlock 3 calls"] in clusters


def test_number_names_have_the_name_around_them() -> None:
    model = Runs(lambda self, x: self.layers(x) + 1, layers=nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    assert drawn(tl.trace(model, floats(3, 4))).titles()[1:3] == ["layers.0 Linear", "layers.1 ReLU"]
