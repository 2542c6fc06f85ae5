"""What is copied before it is overwritten, and the gradient edges of values that were."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchlens as tl
from torchlens.errors import OptionError, OverwrittenError

FLOAT = 4  # bytes


def copied_bytes(function: Callable[..., object], *inputs: Tensor, **options: int) -> int:
    return tl.trace(function, inputs, capture=tl.options.CaptureOptions(**options)).copied_bytes


# ---- cost: the bytes written, not the buffer -----------------------------------------------------


def assign_slices(steps: int) -> Tensor:
    out = torch.zeros(2, steps, 3)
    for t in range(steps):
        out[:, t] = t
    return out


def copy_into_slices(steps: int) -> Tensor:
    out = torch.zeros(2, steps, 3)
    for t in range(steps):
        out[:, t].copy_(torch.full((2, 3), 1.0))
    return out


def copy_by_index(steps: int) -> Tensor:
    out = torch.zeros(2, steps, 3)
    for t in range(steps):
        out.index_copy_(1, torch.tensor([t]), torch.ones(2, 1, 3))
    return out


def assign_by_tensor(steps: int) -> Tensor:
    out = torch.zeros(2, steps, 3)
    for t in range(steps):
        out[:, torch.tensor([t])] = 1.0
    return out


def write_into_out(steps: int) -> Tensor:
    out = torch.zeros(steps, 2, 3)
    for t in range(steps):
        torch.add(torch.ones(2, 3), 1, out=out[t])
    return out


def append_to_a_cache(steps: int) -> Tensor:
    cache = torch.zeros(1, steps, 6)
    for t in range(steps):
        cache[:, t : t + 1] += 1
        cache[:, : t + 1].sum()
    return cache


SLICES = [assign_slices, copy_into_slices, copy_by_index, assign_by_tensor, write_into_out]


@pytest.mark.parametrize("steps", [100, 200, 400])
@pytest.mark.parametrize("function", SLICES, ids=lambda function: function.__name__)
def test_slice_writes_copy_what_they_overwrite(function: Callable[..., object], steps: int) -> None:
    assert copied_bytes(lambda: function(steps)) == steps * 2 * 3 * FLOAT


@pytest.mark.parametrize("steps", [100, 200, 400])
def test_a_cache_that_grows_is_copied_at_most_twice(steps: int) -> None:
    assert copied_bytes(lambda: append_to_a_cache(steps)) <= 2 * steps * 6 * FLOAT


@pytest.mark.parametrize("function", SLICES, ids=lambda function: function.__name__)
def test_each_version_of_the_written_buffer_can_be_read(function: Callable[..., object]) -> None:
    trace = tl.trace(lambda: function(5), ())
    start = trace["zeros_1"].out
    assert start.shape in ((2, 5, 3), (5, 2, 3)) and not start.any()
    assert trace.output.ne(0).sum() in (30, 24)


@pytest.mark.parametrize(
    ("write", "elements"),
    [
        (lambda y: y.add_(1), 12),
        (lambda y: y[1].add_(1), 4),
        (lambda y: y[1:, ::2].zero_(), 4),
        (lambda y: y[:0].zero_(), 0),
        (lambda y: y.expand(2, 3, 4)[0].mul_(1), 12),
        (lambda y: y.__setitem__(y > 8, 0), 4),
        (lambda y: y.__setitem__((slice(None), [0, 2]), 0), 6),
        (lambda y: y.index_fill_(0, torch.tensor([1]), 0), 4),
        (lambda y: y.index_put_((torch.tensor([0, 1]), torch.tensor([2, 3])), torch.tensor(1.0)), 2),
        (lambda y: y.unsqueeze_(0), 0),
        (lambda y: y.t_(), 0),
        (lambda y: y.transpose_(0, 1), 0),
        (lambda y: y.requires_grad_(), 0),
        (lambda y: y.detach_(), 0),
        (lambda y: setattr(y, "data", torch.ones(2)), 0),
        (lambda y: F.relu(y, inplace=True), 12),
        (lambda y: torch.sin(y, out=y), 12),
        (lambda y: torch._foreach_add_([y[0], y[1]], 1), 8),
    ],
)
def test_a_write_copies_the_elements_it_changes(write: Callable[[Tensor], object], elements: int) -> None:
    x = torch.arange(1.0, 13).reshape(3, 4)
    assert copied_bytes(lambda x: (write(y := x.clone()), y)[1], x) == elements * FLOAT


def test_a_storage_that_nothing_writes_costs_nothing() -> None:
    assert copied_bytes(lambda x: (x * 2 + 1).t()[0].sum(), torch.ones(3, 4)) == 0


def test_running_statistics_cost_their_own_bytes() -> None:
    model = nn.BatchNorm1d(4)
    assert copied_bytes(model, torch.rand(3, 4)) == 2 * 4 * FLOAT + 8  # mean, var, the int64 counter
    assert copied_bytes(model.eval(), torch.rand(3, 4)) == 0


# ---- the bound -----------------------------------------------------------------------------------


def three_writes(x: Tensor) -> Tensor:
    return x.clone().add_(1).mul_(2).sub_(3)


def test_older_values_beyond_the_bound_raise_and_name_it() -> None:
    x = torch.ones(4)
    options = tl.options.CaptureOptions(max_copied=4 * FLOAT)
    trace = tl.trace(three_writes, x, capture=options)
    assert trace.copied_bytes == 4 * FLOAT
    assert torch.equal(trace["sub_1"].out, torch.ones(4))
    assert torch.equal(trace["clone_1"].out, torch.ones(4))  # what the first write overwrote was saved
    for label in ("add_1", "mul_1"):
        with pytest.raises(OverwrittenError, match=f"{label}:1 was overwritten .* max_copied=16 bytes"):
            trace[label].out


@pytest.mark.parametrize("bound", [0, 4 * FLOAT, 8 * FLOAT, 100 * FLOAT])
def test_no_more_is_copied_than_the_bound(bound: int) -> None:
    assert copied_bytes(three_writes, torch.ones(4), max_copied=bound) == min(bound, 12 * FLOAT)


def test_within_the_bound_all_is_readable() -> None:
    options = tl.options.CaptureOptions(max_copied=12 * FLOAT)
    trace = tl.trace(three_writes, torch.ones(4), capture=options)
    assert [float(trace[k].out[0]) for k in ("clone_1", "add_1", "mul_1", "sub_1")] == [1, 2, 4, 1]


def test_a_value_whose_elements_were_not_lost_is_readable() -> None:
    def write(x: Tensor) -> Tensor:
        y = x.clone()
        top, low = y[0], y[1]
        low.zero_()
        return top + 1

    x = torch.rand(2, 4)
    trace = tl.trace(write, x, capture=tl.options.CaptureOptions(max_copied=0))
    assert torch.equal(trace["getitem_1"].out, x[0])
    with pytest.raises(OverwrittenError, match=r"getitem_2:1 .*max_copied=0"):
        trace["getitem_2"].out


def test_a_negative_bound_is_refused() -> None:
    with pytest.raises(OptionError, match="max_copied=-1 is negative"):
        tl.options.CaptureOptions(max_copied=-1)


# ---- parameters ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "momenta"),
    [
        pytest.param(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=False), 0, id="loop"),
        pytest.param(lambda p: torch.optim.SGD(p, lr=0.1, foreach=True), 0, id="foreach"),
        pytest.param(lambda p: torch.optim.SGD(p, lr=0.1, fused=True), 0, id="fused"),
        pytest.param(
            lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
            2 * (16 + 4),  # made by `empty_like` before the step fills them
            id="fused momentum",
        ),
    ],
)
def test_an_optimizer_step_copies_no_parameter(
    build: Callable[..., torch.optim.Optimizer], momenta: int
) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    optimizer = build(model.parameters())
    with tl.capture(model) as trace:
        model(torch.ones(1, 4)).sum().backward()
        optimizer.step()
    assert trace.copied_bytes == momenta * FLOAT
    with pytest.raises(OverwrittenError, match="parameters are referenced, never copied"):
        trace["linear_1"].args[1].out


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "loop"])
def test_an_older_parameter_raises_after_a_step(fused: bool) -> None:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=fused)
    with tl.capture(model) as trace:
        model(torch.ones(1, 4)).sum().backward()
        optimizer.step()
    for at in (1, 2):
        with pytest.raises(OverwrittenError, match="parameters are referenced, never copied"):
            trace["linear_1"].args[at].out


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "loop"])
def test_values_around_an_adam_step_are_right_or_raise(fused: bool) -> None:
    model = nn.Linear(4, 1, bias=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, fused=fused)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(1, 4)).sum().backward()
        optimizer.step()
    state = optimizer.state[model.weight]
    before = state["exp_avg"].clone()
    with tl.capture(model) as trace:
        kept = state["exp_avg"] * 1
        alias = state["exp_avg"].view(-1)
        optimizer.step()
    assert not torch.equal(state["exp_avg"], before)
    assert torch.equal(trace["mul_1"].args[0].out, before)
    assert torch.equal(trace["view_1"].out, before.view(-1))


def test_a_step_in_a_loop_without_gradients_is_no_copy_either() -> None:
    model = nn.Linear(4, 4)

    def step(x: Tensor) -> Tensor:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(0.5)
                parameter.data.add_(1)
        return model(x)

    with tl.capture(model) as trace:
        step(torch.ones(1, 4))
    assert trace.copied_bytes == 0


# ---- gradient edges ------------------------------------------------------------------------------


def gradient(trace: tl.Trace, label: str) -> Tensor:
    return torch.autograd.grad(trace.output.sum(), [trace[label].gradient_edge], retain_graph=True)[0]


def test_gradients_of_values_that_an_activation_overwrote() -> None:
    convolution = nn.Conv1d(1, 2, 3)
    model = nn.Sequential(convolution, nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(8, 1, bias=False))
    x = torch.randn(1, 1, 6)
    trace = tl.trace(model, x)
    hidden = convolution(x).detach().requires_grad_()
    by_hand = model[3](hidden.relu().flatten(1))
    expected = torch.autograd.grad(by_hand.sum(), hidden)[0]
    assert torch.equal(gradient(trace, "conv1d_1"), expected)
    assert torch.equal(trace["conv1d_1"].out, hidden)
    after_activation = model[3].weight.reshape(1, 2, 4)
    assert torch.equal(gradient(trace, "relu_1"), after_activation)
    assert torch.equal(trace["relu_1"].out, hidden.relu())


def overwritten_twice(x: Tensor) -> Tensor:
    y = x * 2
    z = y * 7
    y.mul_(3)
    y.mul_(5)
    return z + y


def test_gradients_of_each_version_of_a_tensor() -> None:
    x = torch.tensor([0.5, 1.0], requires_grad=True)
    trace = tl.trace(overwritten_twice, x)
    found = {
        label: gradient(trace, label).tolist()
        for label in ("input_1:1", *(f"mul_{k}:1" for k in range(1, 5)))
    }
    # y is read as 7y before it is tripled and then multiplied by 5
    assert found == {
        "input_1:1": [2.0 * (7 + 15)] * 2,
        "mul_1:1": [7.0 + 15] * 2,
        "mul_2:1": [1.0] * 2,
        "mul_3:1": [5.0] * 2,
        "mul_4:1": [1.0] * 2,
    }


def written_through_views(x: Tensor) -> Tensor:
    c = x * 2
    row = c[0]
    c[..., :-1] = x[..., 1:] * 10
    row.mul_(3)
    return c * c


def test_gradients_of_values_written_through_views() -> None:
    x = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
    trace = tl.trace(written_through_views, x)
    # c is 2x in the last column, 10 times x's next column elsewhere, row 0 tripled
    c = trace.output.detach().sqrt()
    triple = torch.tensor([[3.0], [1.0]])
    assert torch.equal(c, torch.tensor([[20.0, 30, 6], [50, 60, 12]]) * triple)
    assert torch.allclose(gradient(trace, "mul_1:1"), 2 * c * triple * torch.tensor([0.0, 0, 1]))
    assert torch.allclose(gradient(trace, "setitem_1:1"), 2 * c * triple)
    assert torch.allclose(gradient(trace, "mul_2:1"), (2 * c * triple)[:, :2])
    # torch makes the view anew once its base was written: nothing flows through the first one
    first = trace["getitem_1:1"].gradient_edge
    assert torch.autograd.grad(trace.output.sum(), [first], allow_unused=True) == (None,)


def test_a_leaf_has_an_edge_and_a_constant_has_none() -> None:
    x = torch.ones(3, requires_grad=True)
    trace = tl.trace(lambda x: (x * torch.ones(3)).sum(), x)
    assert trace["ones_1"].gradient_edge is None and trace["ones_1"].requires_grad is False
    assert trace.inputs[0].requires_grad is True
    assert torch.equal(gradient(trace, "input_1:1"), torch.ones(3))


def test_without_gradients_nothing_has_an_edge() -> None:
    with torch.no_grad():
        trace = tl.trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True)), torch.ones(1, 4))
    assert [op.requires_grad for op in trace.ops] == [False] * len(trace.ops)


def test_an_edge_is_that_of_the_op_when_the_tensor_is_detached_later() -> None:
    def cut(x: Tensor) -> Tensor:
        y = x * 2
        z = y + 1
        y.detach_()
        return z * y

    x = torch.ones(3, requires_grad=True)
    trace = tl.trace(cut, x)
    assert trace["mul_1"].requires_grad is True
    assert torch.equal(gradient(trace, "mul_1:1"), torch.full((3,), 2.0))
    assert trace["detach_1"].requires_grad is False


def test_a_value_needs_no_gradient_before_its_tensor_is_told_to() -> None:
    def start(x: Tensor) -> Tensor:
        y = x * 2
        y.requires_grad_()
        return y * 3

    trace = tl.trace(start, torch.ones(3))
    assert trace["mul_1:1"].requires_grad is False
    assert trace["requires_grad_1:1"].requires_grad is True


def torchvision_models() -> ModuleType:
    """torchvision, also where its compiled operators were built for another torch."""
    try:
        return importlib.import_module("torchvision.models")
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        for name in ("nms", "qnms"):
            torch.library.define(
                f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            )
        return importlib.import_module("torchvision.models")


def test_grad_cam_on_a_residual_network() -> None:
    model = torchvision_models().resnet18(weights=None).eval()
    x = torch.rand(1, 3, 64, 64)
    trace = tl.trace(model, x)
    op = trace["layer4.1.relu:2"].outputs[0]
    site = trace["layer4.1.conv2:1"].ops[0]
    assert op.func_name == "relu_" and op.is_inplace
    score = trace.output[0, 7]
    found = torch.autograd.grad(score, [op.gradient_edge, site.gradient_edge], retain_graph=True)
    weights = model.fc.weight[7].reshape(1, 512, 1, 1) / (2 * 2)
    assert torch.allclose(found[0], weights.expand(1, 512, 2, 2))
    assert found[1].shape == site.shape == (1, 512, 2, 2)
    before = trace["layer4.1"].calls[0].ops[-1]
    assert before.func_name == "__iadd__"
    gated = torch.autograd.grad(score, [before.gradient_edge], retain_graph=True)[0]
    assert torch.allclose(gated, found[0] * (before.out > 0))
    assert torch.equal(op.out, before.out.relu())


def test_an_edge_of_a_value_changed_after_the_capture_raises() -> None:
    x = torch.ones(3, requires_grad=True)
    trace = tl.trace(lambda x: x * 2, x)
    trace.output.mul_(2)
    with pytest.raises(OverwrittenError, match="mul_1:1 was changed in place"):
        trace["mul_1"].gradient_edge


# ---- calls that fail on the way ------------------------------------------------------------------


def test_a_write_that_fails_is_no_op_and_loses_nothing() -> None:
    def attempt(x: Tensor) -> Tensor:
        y = x.clone()
        try:
            y.add_(torch.ones(7))
        except RuntimeError:
            y.mul_(2)
        return y

    x = torch.rand(3)
    trace = tl.trace(attempt, x)
    assert [op.type for op in trace.ops] == ["input", "clone", "ones", "mul", "output"]
    assert torch.equal(trace["clone_1"].out, x) and torch.equal(trace.output, x * 2)
