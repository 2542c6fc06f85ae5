"""Whose data enters each op, where elements are written through views."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import torchlens as tl
from tests.programs.reading import lint, parent_labels


def all_parents(function: Callable[..., object], *inputs: Tensor) -> dict[str, list[str]]:
    trace = tl.trace(function, inputs or (torch.rand(3, 4),))
    lint(trace)
    return {
        op.label.removesuffix(":1"): [label.removesuffix(":1") for label in parent_labels(op)]
        for op in trace.ops
    }


def test_a_slice_assignment_is_a_version_of_the_base() -> None:
    def write(x: Tensor) -> Tensor:
        c = torch.zeros(3, 4)
        c[..., :-1] = x[..., 1:]
        return c.sin()

    parents = all_parents(write)
    assert parents["setitem_1"] == ["zeros_1", "getitem_1"]
    assert parents["sin_1"] == ["setitem_1"]


def test_a_whole_overwrite_hides_what_was_there() -> None:
    def write(x: Tensor) -> Tensor:
        y = x * 2
        y.copy_(x)
        return y.sin()

    assert all_parents(write)["sin_1"] == ["copy_1"]


def test_a_write_beside_a_view_is_no_parent_of_its_readers() -> None:
    def write(x: Tensor) -> Tensor:
        y = x * 2
        top, low = y[0], y[1]
        low.add_(1)
        return top.sin() + low.cos() + y.tan()

    parents = all_parents(write)
    assert parents["sin_1"] == ["getitem_1"]
    assert parents["cos_1"] == ["add_1"]
    assert parents["tan_1"] == ["mul_1", "add_1"]


def test_a_view_taken_after_a_write_comes_from_what_it_shows() -> None:
    def write(x: Tensor) -> Tensor:
        y = x * 2
        y[0].zero_()
        return y[0].sin() + y[1].cos()

    parents = all_parents(write)
    assert parents["getitem_2"] == ["zero_1"]
    assert parents["getitem_3"] == ["mul_1"]


def test_writers_that_cover_a_reader_together_are_all_its_parents() -> None:
    def write(x: Tensor) -> Tensor:
        y = x * 2
        for column in range(4):
            y[:, column].fill_(column)
        return y.sin()

    trace = tl.trace(write, torch.rand(3, 4))
    assert parent_labels(trace["sin_1:1"]) == ["fill_1:1", "fill_1:2", "fill_1:3", "fill_1:4"]


def test_an_interleaved_write_leaves_the_elements_between() -> None:
    def write(x: Tensor) -> Tensor:
        y = x * 2
        y[:, ::2].zero_()
        y[:, 1::2].fill_(1)
        return y.sin()

    assert all_parents(write)["sin_1"] == ["zero_1", "fill_1"]


def test_a_dtype_view_writes_the_same_bytes() -> None:
    def write(x: Tensor) -> Tensor:
        y = x * 2
        y.view(torch.uint8)[0, 3].zero_()
        return y[0, :1].sin() + y[1].cos()

    parents = all_parents(write)
    assert parents["getitem_2"] == ["mul_1", "zero_1"]
    assert parents["getitem_3"] == ["mul_1"]


def test_the_same_tensor_at_two_positions_is_one_parent() -> None:
    trace = tl.trace(lambda x: torch.cat([x + x, x, x]), torch.rand(3))
    assert parent_labels(trace["cat_1:1"]) == ["add_1:1", "input_1:1"]
    assert trace.graph.edges["input_1:1", "add_1:1"]["positions"] == ("0", "1")
    assert trace.graph.edges["input_1:1", "cat_1:1"]["positions"] == ("0.1", "0.2")


@pytest.mark.parametrize(
    ("call", "positions"),
    [
        (lambda x, y: torch.add(input=x, other=y), {"input_1:1": ("input",), "input_2:1": ("other",)}),
        (lambda x, y: torch.where(x > 0, y, y), {"gt_1:1": ("0",), "input_2:1": ("1", "2")}),
        (lambda x, y: torch.stack((y, x[0], y)), {"getitem_1:1": ("0.1",), "input_2:1": ("0.0", "0.2")}),
        (lambda x, y: x[y.long()], {"input_1:1": ("0",), "long_1:1": ("1",)}),
        (
            lambda x, y: x[y.long(), None, y.long()],
            {"input_1:1": ("0",), "long_1:1": ("1.0",), "long_2:1": ("1.2",)},
        ),
        (
            lambda x, y: x[y.long()[0] : y.long()[1]],
            {"input_1:1": ("0",), "getitem_1:1": ("1.start",), "getitem_2:1": ("1.stop",)},
        ),
        (lambda x, y: torch.clamp(x, min=y, max=y), {"input_1:1": ("0",), "input_2:1": ("min", "max")}),
    ],
    ids=["keywords", "twice", "list", "index", "indices", "slice", "bounds"],
)
def test_positions_name_every_argument(
    call: Callable[..., Tensor], positions: dict[str, tuple[str, ...]]
) -> None:
    trace = tl.trace(call, (torch.zeros(3, 3), torch.tensor([0.0, 1.0, 2.0])))
    last = trace.outputs[0].parents[0]
    assert {
        parent: edge["positions"] for parent, _, edge in trace.graph.in_edges(last.label, data=True)
    } == positions


def test_references_lead_to_every_writer_behind_an_argument() -> None:
    def write(x: Tensor) -> Tensor:
        y = x * 2
        y[0].zero_()
        return y.sin()

    trace = tl.trace(write, torch.rand(3, 4))
    (reference,) = trace["sin_1"].args
    assert [op.label for op in reference.ops] == ["mul_1:1", "zero_1:1"]
    assert (reference.op.label, reference.label, repr(reference)) == ("zero_1:1",) * 3
    assert (reference.param, reference.buffer, reference.position) == (None, None, "0")


def test_values_that_torch_unpacks_by_itself_keep_their_origin() -> None:
    """An autograd function is given views of its inputs that no torch call made."""

    class Squared(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return x * x

        @staticmethod
        def backward(ctx: object, gradient: Tensor) -> Tensor:
            return gradient

    parents = all_parents(lambda x: Squared.apply(x.sin()).cos(), torch.rand(3, requires_grad=True))
    assert parents["mul_1"] == ["sin_1"]
    assert parents["cos_1"] == ["mul_1"]
