"""`tl.validate`: what holds for every model, what it gives back, and what it says where it cannot tell."""

from __future__ import annotations

import random
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

import torchlens as tl
from tests.programs.examples import EXAMPLES, floats
from tests.programs.in_place import PROGRAMS, grid
from tests.programs.last_writers import equal_bits


@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no_grad"])
@pytest.mark.parametrize("train", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_holds(name: str, train: bool, grad: bool) -> None:
    example = EXAMPLES[name]
    torch.manual_seed(5)
    model = example.build().train(train)
    with torch.set_grad_enabled(grad):
        report = tl.validate(model, example.inputs(), input_kwargs=example.kwargs())
    assert report, report
    assert report.checked


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_every_program_that_writes_in_place_holds(program: Any) -> None:
    trace = tl.trace(program, (grid(3, 4),))
    values = [op.out.clone() for op in trace.ops]
    report = trace.check()
    assert report, report
    assert all(equal_bits(op.out, value) for op, value in zip(trace.ops, values)), (
        "checking changed the trace"
    )
    assert trace.check(), "a second check sees what the first one saw"


class Counting(nn.Module):
    """Its output depends on how often it ran."""

    runs = 0

    def forward(self, x: Tensor) -> Tensor:
        self.runs += 1
        return x * self.runs


def test_a_model_that_varies_by_itself_is_not_blamed_on_the_trace() -> None:
    report = tl.validate(Counting(), floats(2))
    assert report
    (finding,) = report.unchecked
    assert finding.about == "output"
    assert "two plain forwards from one random state differ too" in finding.text


class SeesTheCapture(nn.Module):
    """Computes something else while a function mode is on."""

    def forward(self, x: Tensor) -> Tensor:
        return x * (2 if torch.overrides._get_current_function_mode_stack() else 3)


def test_a_model_that_computes_something_else_when_traced_fails() -> None:
    report = tl.validate(SeesTheCapture(), torch.ones(4))
    assert not report
    (finding,) = report.failed
    assert finding.about == "output"
    assert finding.text == "a plain forward gives another value: 4 of 4 elements differ, by up to 1"


class RaisesWhenPlain(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if not torch.overrides._get_current_function_mode_stack():
            raise ValueError("no mode")
        return x * 1


def test_a_plain_forward_that_raises_is_a_failure() -> None:
    report = tl.validate(RaisesWhenPlain(), torch.ones(4))
    assert [finding.text for finding in report.failed] == [
        "a plain forward raised ValueError: no mode, the traced one did not"
    ]


def test_an_exception_of_the_traced_forward_comes_through() -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        tl.validate(nn.Linear(3, 2), torch.ones(2, 4))


def test_buffers_and_random_state_are_given_back() -> None:
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.5))
    mean, value = model[0].running_mean, model[0].running_mean.clone()
    torch.manual_seed(3), random.seed(3), numpy.random.seed(3)
    before = torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1].copy()
    assert tl.validate(model, floats(3, 4))
    assert model[0].running_mean is mean
    assert torch.equal(mean, value)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert (numpy.random.get_state()[1] == before[2]).all()


class AssignsItsBuffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        self.seen = self.seen + x
        return self.seen * 2


def test_an_assigned_buffer_is_given_back_too() -> None:
    model = AssignsItsBuffer()
    seen = model.seen
    assert tl.validate(model, torch.ones(3))
    assert model.seen is seen
    assert torch.equal(seen, torch.zeros(3))


class WritesIntoItsInput(nn.Module):
    def forward(self, x: Tensor, cache: dict[str, list[Tensor]]) -> Tensor:
        cache["steps"].append(x.add_(1))
        return x + len(cache["steps"])


def test_inputs_changed_by_the_forward_are_the_same_for_both_forwards() -> None:
    assert tl.validate(WritesIntoItsInput(), (torch.zeros(3), {"steps": []}))


def test_an_input_with_a_history_is_copied_with_its_need_of_a_gradient() -> None:
    x = floats(2, 3).requires_grad_() * 2
    assert tl.validate(nn.Linear(3, 3), x)


def test_a_parameter_changed_inside_a_block_cannot_be_checked_and_says_so() -> None:
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with tl.capture(model) as trace:
        model(floats(2, 3)).sum().backward()
        optimizer.step()
    report = trace.check()
    assert report, report
    assert {finding.about for finding in report.unchecked} >= {"linear_1:1"}
    assert any("parameters are referenced, never copied" in finding.text for finding in report.unchecked)


def test_checking_leaves_modes_and_their_owners_alone() -> None:
    trace = tl.trace(nn.Linear(3, 2), floats(2, 3))
    with tl.capture(nn.Identity()) as other:
        assert trace.check()
    assert len(other.ops) == 0


def test_meta_values_have_no_bits_to_check() -> None:
    report = tl.validate(nn.Linear(3, 2, device="meta"), torch.empty(4, 3, device="meta"))
    assert report
    assert {finding.text for finding in report.unchecked} == {
        "values on meta have no bits; dtype and shape agree"
    }


@torch.jit.script
def doubled(x: Tensor) -> Tensor:
    return x * 2


def test_work_that_no_op_stands_for_is_not_checked() -> None:
    def forward(x: Tensor) -> Tensor:
        doubled(x)
        return x + 1

    report = tl.validate(forward, floats(3))
    assert report
    (finding,) = report.unchecked
    assert finding.about.startswith("aten.mul.Scalar, at ")
    assert finding.text == "an operator that no op of the trace accounts for"
    assert report.unverified == "unwitnessed_op"


def test_advice_names_the_parent_that_moved_in_vain() -> None:
    report = tl.trace(lambda x: x * torch.zeros_like(x), (floats(3),)).check()
    assert report
    assert [(finding.about, finding.text) for finding in report.advice] == [
        ("zeros_like_1:1", "does not move when input_1:1 does"),
        ("mul_1:1", "does not move when input_1:1 does"),
    ]


PAGE = """\
Sequential · holds
         held  failed  unchecked
record     15       0          0
values      4       0          0
witness     4       0          0
forward     1       0          0
advice     zeros_like_1:1: does not move when linear_1:1 does"""


class Silent(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x) + x


def test_the_page_as_printed() -> None:
    torch.manual_seed(0)
    report = tl.validate(nn.Sequential(nn.Linear(3, 3), Silent()), floats(2, 3))
    assert str(report) == PAGE
    assert "holds" in report._repr_html_()


def traces_inside(x: Tensor) -> Tensor:
    return torch.jit.trace(lambda inner: inner * 2, (x,))(x)


def test_where_the_witness_cannot_run_the_rest_is_checked() -> None:
    report = tl.validate(traces_inside, floats(3))
    assert report, report
    texts = {finding.about: finding.text for finding in report.unchecked}
    assert texts["witness"].startswith("under the witness the forward raised RuntimeError")


class SharesBuffers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        whole = torch.zeros(6)
        self.register_buffer("whole", whole)
        self.register_buffer("low", whole[:4])

    def forward(self, x: Tensor) -> Tensor:
        self.low.add_(x)
        return self.whole * 2


class GrowsItsBuffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(0))

    def forward(self, x: Tensor) -> Tensor:
        self.seen.resize_(x.shape).copy_(x)
        return self.seen * 2


def shape_by_fake_tensors(x: Tensor) -> Tensor:
    with FakeTensorMode() as mode:
        size = (mode.from_tensor(x) * 2).shape
    return x * size[0]


@pytest.mark.parametrize(
    ("model", "x"),
    [
        (SharesBuffers(), floats(4)),
        (GrowsItsBuffer(), floats(3)),
        (nn.Sequential(nn.LazyLinear(5), nn.LazyLinear(2)), floats(3, 4)),
        (shape_by_fake_tensors, floats(3)),
    ],
    ids=["buffers that share memory", "a buffer that grows", "lazy layers", "fake tensors"],
)
def test_unusual_models_hold(model: Any, x: Tensor) -> None:
    state = {name: buffer.clone() for name, buffer in getattr(model, "named_buffers", dict().items)()}
    report = tl.validate(model, x)
    assert report, report
    for name, buffer in state.items():
        assert equal_bits(model.get_buffer(name), buffer)


def writes_one_tensor_a_thousand_times(x: Tensor) -> Tensor:
    x = x.clone()
    for _ in range(1000):
        x.add_(1)
    return x


def test_old_values_are_read_from_the_next_write_alone() -> None:
    trace = tl.trace(writes_one_tensor_a_thousand_times, floats(3))
    assert equal_bits(trace["add_1:500"].out, trace["add_1:1"].out + 499)
    assert trace.check()
