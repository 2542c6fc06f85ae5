"""Two traces of one graph, or what sets them apart."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, note, settings
from hypothesis import strategies as st
from torch import nn

import torchlens as tl
from tests import models
from tests.programs import random_source
from tests.programs.random_source import Program
from torchlens.errors import TorchLensError
from torchlens.testing import Snapshot, assert_same_graph
from torchlens.testing.description import describe
from torchlens.testing.page import page_of, read_page


def test_one_model_with_other_values_on_another_batch() -> None:
    model = models.encoder().eval()
    one, other = (tl.trace(model, torch.randn(2, 3, 4)) for _ in range(2))
    assert_same_graph(one, other)
    assert_same_graph(one, tl.trace(model, torch.randn(2, 3, 4), save=[]))


def test_the_message_is_a_difference_of_ops() -> None:
    one = tl.trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), torch.ones(1, 2))
    other = tl.trace(nn.Sequential(nn.Linear(2, 3), nn.Tanh()), torch.ones(1, 2))
    with pytest.raises(AssertionError, match="graph") as caught:
        assert_same_graph(one, other)
    assert isinstance(caught.value, TorchLensError)
    assert str(caught.value).splitlines() == [
        "the second trace has another graph than the first:",
        "",
        "  linear_1  shape 1x3 instead of 1x2  <- starts here",
        "  linear_1  parameter 0.weight 3x2 instead of 2x2",
        "  linear_1  parameter 0.bias 3 instead of 2",
        "  tanh_1    stands in place of relu_1",
        "  tanh_1    shape 1x3 instead of 1x2",
        "  output_1  shape 1x3 instead of 1x2",
    ]


def test_many_differences_are_counted() -> None:
    one, other = (tl.trace(models.encoder().eval(), torch.randn(size, 3, 4)) for size in (1, 2))
    with pytest.raises(AssertionError, match=r"and \d+ more differences, of \d+ layers$"):
        assert_same_graph(one, other)


def test_which_operand_is_which() -> None:
    one, other = (tl.trace(subtracts(first), torch.ones(2)) for first in (True, False))
    with pytest.raises(
        AssertionError,
        match=r"sub_1 \(test_graphs.py:\d+\)  reads exp_1, mul_1 instead of mul_1, exp_1  <- starts here$",
    ):
        assert_same_graph(one, other)


def subtracts(first: bool) -> Any:
    def run(x: torch.Tensor) -> torch.Tensor:
        a, b = x * 2, x.exp()
        pair = (a, b) if first else (b, a)
        return torch.sub(*pair)

    return run


@settings(max_examples=40)
@given(st.booleans().flatmap(random_source.programs))
def test_random_programs(program: Program) -> None:
    """A second run has the graph of the first, the page of a trace says all that is described of it."""
    note(program.source)
    torch.manual_seed(0)
    one, other = (tl.trace(program.build(), program.inputs()) for _ in range(2))
    assert_same_graph(one, other)
    described = describe(one._reader, "stats")
    assert {line.label: line.passes for line in described.layers} == {
        layer.layer_label: layer.num_passes for layer in one.layers
    }
    for line, layer in zip(described.layers, one.layers, strict=True):
        assert list(line.parents) == [parent.layer_label for parent in layer.parents]
        assert sum(line.parents.values()) == sum(len(op.parents) for op in layer.ops)
        assert list(line.params) == [param.address for param in layer.params]
    assert page_of(described) == page_of(describe(other._reader, "stats"))


def test_a_page_is_read_back(tmp_path: Any) -> None:
    snapshot = Snapshot(tmp_path / "a.txt")
    trace = tl.trace(models.encoder().eval(), torch.ones(1, 3, 4))
    snapshot.update(trace)
    assert read_page(snapshot.path) == describe(trace._reader, "stats")
