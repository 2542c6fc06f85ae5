"""Losses of kept values go backward into the model, on every path by which values are kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests.programs.losses import (
    OVERWRITTEN,
    PLAIN_PATHS,
    READY,
    READY_PATHS,
    UNTOUCHED,
    Case,
    Custom,
    Recurrent,
    WritesTwice,
    assert_close,
    assert_same,
    by_hooks,
    captured,
    extracted,
    gradients,
    loss_of,
    plucked,
    recorded,
    traced,
    x,
)
from torchlens.options import CaptureOptions


@pytest.mark.parametrize("path", [*PLAIN_PATHS, *READY_PATHS])
@pytest.mark.parametrize("name", UNTOUCHED)
def test_gradients_are_those_of_the_same_loss_by_hooks(name: str, path: str) -> None:
    case = UNTOUCHED[name]
    expected = gradients(case, by_hooks)
    assert any(gradient is not None and gradient.any() for gradient in expected.values())
    assert_same(gradients(case, (PLAIN_PATHS | READY_PATHS)[path]), expected)


@pytest.mark.parametrize("name", UNTOUCHED)
def test_gradients_of_a_plucked_value(name: str) -> None:
    case = UNTOUCHED[name]
    for site in case.sites:
        single = replace(case, sites=(site,))
        assert_same(gradients(single, plucked), gradients(single, by_hooks))


@pytest.mark.parametrize("path", READY_PATHS)
@pytest.mark.parametrize("name", OVERWRITTEN)
def test_values_that_are_overwritten_later_stay_connected(name: str, path: str) -> None:
    case = OVERWRITTEN[name]
    assert_close(gradients(case, READY_PATHS[path]), gradients(case, by_hooks))


@pytest.mark.parametrize("save", [None, ["relu"], ["relu_1", "mul_1", "enter"]])
def test_without_backward_ready_an_overwritten_value_is_a_detached_copy(save: list[str] | None) -> None:
    torch.manual_seed(0)
    model, given = WritesTwice(), torch.randn(3, 4)
    entered = tl.pluck(model, given, "enter")
    trace = tl.trace(model, given, save=save)
    assert trace["relu_1"].out.requires_grad
    if save is None or "enter" in save:
        assert not trace["enter"].out.requires_grad
        assert torch.equal(trace["enter"].out, entered)
        assert torch.equal(trace["mul_1"].out, entered * 0.5)


def test_what_a_custom_function_gave_stays_connected_when_it_is_overwritten_later() -> None:
    model = nn.Sequential(nn.Linear(4, 4), Custom(), nn.ReLU(inplace=True))
    trace = tl.trace(model, torch.randn(2, 4), save="mul_1", capture=READY)
    assert trace["mul_1"].out.requires_grad


def test_a_copy_of_what_a_custom_function_gave_is_connected_by_its_module_only() -> None:
    """Its graph begins when `apply` returns, after the op inside."""
    model = nn.Sequential(nn.Linear(4, 4), Custom())
    options = CaptureOptions(backward_ready=True, copy=True)
    assert not tl.trace(model, torch.randn(2, 4), save="mul_1", capture=options)["mul_1"].out.requires_grad
    assert tl.trace(model, torch.randn(2, 4), save="1", capture=options)["mul_1"].out.requires_grad


METADATA = {
    "transposed": lambda h: h.t_(),
    "transposed and written": lambda h: h.t_().mul_(2),
    "data replaced": lambda h: setattr(h, "data", torch.ones(2, 4)),
}


@pytest.mark.parametrize("name", METADATA)
def test_a_value_whose_shape_is_changed_in_place_stays_connected(name: str) -> None:
    layer = nn.Linear(4, 4)

    def forward(x: Tensor) -> None:
        METADATA[name](layer(x))

    given = torch.randn(2, 4)
    value = tl.trace(forward, given, save="linear_1", capture=READY)["linear_1"].out
    assert torch.equal(value, layer(given))
    assert value.requires_grad


@pytest.mark.parametrize("get", [recorded, extracted])
def test_record_and_extract_detach_what_is_overwritten(get: Callable[..., list[Any]]) -> None:
    entered, rectified = get(WritesTwice(), torch.randn(3, 4), Case(WritesTwice, x(3, 4), ("enter", "relu")))
    assert not entered.requires_grad and rectified.requires_grad


def test_a_pluck_ends_before_its_value_is_overwritten() -> None:
    case = replace(OVERWRITTEN["twice"], sites=("enter",))
    assert_same(gradients(case, plucked), gradients(case, by_hooks))


OF_OVERWRITTEN = {
    "no option": None,
    "backward_ready": READY,
    "copies": CaptureOptions(backward_ready=True, copy=True),
}


@pytest.mark.parametrize("capture", OF_OVERWRITTEN.values(), ids=OF_OVERWRITTEN.keys())
def test_the_gradient_edge_of_an_overwritten_value_is_on_the_way_to_the_output(
    capture: CaptureOptions | None,
) -> None:
    torch.manual_seed(0)
    model, given = WritesTwice(), torch.randn(3, 4)
    trace = tl.trace(model, given, capture=capture)
    edge = trace["linear_1"].gradient_edge
    assert edge is not None
    [slope] = torch.autograd.grad(trace.output.sum(), edge)
    entered = model.enter(given).detach().requires_grad_()
    [expected] = torch.autograd.grad(model.leave(torch.relu(entered * 0.5 - 0.1)).sum(), entered)
    assert torch.equal(slope, expected)


def test_the_gradient_edge_of_a_detached_copy_was_not_kept() -> None:
    trace = tl.trace(WritesTwice(), torch.randn(3, 4), capture=CaptureOptions(copy=True))
    with pytest.raises(tl.errors.NotSavedError, match="backward_ready=True"):
        _ = trace["linear_1"].gradient_edge
    assert trace["input_1"].gradient_edge is None


STEPS = ("tanh_1:1", "tanh_1:2", "tanh_1:3")


def by_labels(save: Any, capture: CaptureOptions | None) -> Callable[..., list[Tensor]]:
    def get(model: nn.Module, given: Tensor) -> list[Tensor]:
        trace = tl.trace(model, given, save=save, capture=capture)
        assert trace["tanh_1"].num_passes == len(STEPS)
        return [trace[step].out for step in STEPS]

    return get


def by_calls(model: nn.Module, given: Tensor) -> list[Tensor]:
    with tl.capture(model, save=[tl.module("tanh")], capture=READY) as t:
        model(given)
    return [call.output for call in t.modules["tanh"].calls]


PASSES = {
    "all": by_labels(None, None),
    "a layer": by_labels("tanh_1", None),
    "each pass": by_labels(list(STEPS), READY),
    "copies": by_labels(tl.func("tanh"), CaptureOptions(backward_ready=True, copy=True)),
    "module calls": by_calls,
    "recorded": lambda model, given: [
        tl.record(model, given, save=["tanh_1"]).to_trace()[s].out for s in STEPS
    ],
    "extracted": lambda model, given: list(tl.extract(model, given, list(STEPS)).values()),
}


@pytest.mark.parametrize("name", PASSES)
def test_a_loss_at_each_pass_of_a_recurrent_layer(name: str) -> None:
    def states(model: nn.Module, given: Tensor) -> list[Tensor]:
        found: list[Tensor] = []
        hook = model.get_submodule("tanh").register_forward_hook(lambda *call: found.append(call[-1]))
        model(given)
        hook.remove()
        return found

    def found_by(get: Callable[..., list[Tensor]]) -> dict[str, Tensor | None]:
        torch.manual_seed(0)
        model, given = Recurrent(), torch.randn(2, len(STEPS), 4)
        loss_of(get(model, given)).backward()
        return {key: parameter.grad for key, parameter in model.named_parameters()}

    if name == "recorded":  # three runs, whose gradients are added in another order
        assert_close(found_by(PASSES[name]), found_by(states))
    else:
        assert_same(found_by(PASSES[name]), found_by(states))


@pytest.mark.parametrize("get", [captured(READY), traced(), recorded, extracted])
def test_gradients_accumulate_over_captures(get: Callable[..., list[Any]]) -> None:
    case = UNTOUCHED["perceptron"]

    def accumulated(get: Callable[..., list[Any]]) -> dict[str, Tensor | None]:
        torch.manual_seed(0)
        model = case.build()
        for _ in range(2):
            (loss_of(get(model, case.given(), case)) / 2).backward()
        return {key: parameter.grad for key, parameter in model.named_parameters()}

    assert_same(accumulated(get), accumulated(by_hooks))


def test_one_backward_for_two_captures() -> None:
    case = UNTOUCHED["tied weights"]

    def both(get: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
        return lambda model, given, case: [*get(model, given, case), *get(model, given.flip(0), case)]

    assert_same(gradients(case, both(captured(READY))), gradients(case, both(by_hooks)))


@pytest.mark.parametrize("get", [captured(READY), traced(CaptureOptions(backward_ready=True, copy=True))])
def test_a_penalty_on_gradients_of_kept_values(get: Callable[..., list[Any]]) -> None:
    case = UNTOUCHED["perceptron"]

    def penalized(get: Callable[..., list[Any]]) -> dict[str, Tensor | None]:
        torch.manual_seed(0)
        model, given = case.build(), case.given().requires_grad_()
        [slope] = torch.autograd.grad(loss_of(get(model, given, case)), given, create_graph=True)
        slope.square().sum().backward()
        return {key: parameter.grad for key, parameter in model.named_parameters()}

    assert_close(penalized(get), penalized(by_hooks))


def test_kept_values_reach_inputs_and_earlier_models() -> None:
    first, second = nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    given = torch.randn(2, 3, requires_grad=True)
    trace = tl.trace(second, first(given), save="0", capture=READY)
    trace["linear_1"].out.sum().backward()
    assert given.grad is not None and first.weight.grad is not None and second[0].weight.grad is not None


def test_a_teacher_without_gradients_and_a_student_in_one_block() -> None:
    teacher, student = nn.Linear(3, 3), nn.Linear(3, 3)
    models, given = {"teacher": teacher, "student": student}, torch.ones(2, 3)
    with tl.capture(models, save=list(models), capture=READY) as t:
        with torch.no_grad():
            teacher(given)
        student(given)
    nn.functional.mse_loss(t.modules["student"].out, t.modules["teacher"].out).backward()
    assert teacher.weight.grad is None
    expected = nn.functional.mse_loss(student(given), teacher(given).detach())
    assert torch.equal(torch.autograd.grad(expected, student.weight)[0], student.weight.grad)
