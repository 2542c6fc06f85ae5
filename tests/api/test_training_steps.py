"""Training steps under a capture are what they are without one, and hold no more than they show."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import torchlens as tl
from tests.programs.losses import (
    OVERWRITTEN,
    READY,
    UNTOUCHED,
    Case,
    WritesTwice,
    assert_same,
    by_hooks,
    captured,
    convolutions,
    extracted,
    gradients,
    loss_of,
    of_trace,
    perceptron,
    recorded,
    traced,
)
from torchlens.errors import OptionError, OverwrittenError
from torchlens.options import CaptureOptions


class Dropping(nn.Module):
    """Normalizes, drops at random, and writes in place."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.drop = convolutions(), nn.Dropout(0.3)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(self.drop(x))


def train(
    around: Callable[[nn.Module], AbstractContextManager[Any]], *, whole: bool = True
) -> Iterator[dict[str, Tensor]]:
    """Gradients, parameters and buffers after each of three steps."""
    torch.manual_seed(0)
    model = Dropping()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(3):
        given, wanted = torch.randn(4, 2, 6, 6), torch.randint(0, 2, (4,))
        with around(model):
            loss = nn.functional.cross_entropy(model(given), wanted)
            if whole:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        if not whole:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        grads = {f"{key}.grad": parameter.grad for key, parameter in model.named_parameters()}
        yield {key: value.clone() for key, value in (model.state_dict() | grads).items()}


AROUND: dict[str, dict[str, Any]] = {
    "everything": {},
    "nothing": {"save": []},
    "one module": {"save": ["body.0"]},
    "a selector": {"save": tl.func("relu_") | tl.in_module("body.3")},
    "backward_ready": {"save": ["body.0", "body.1"], "capture": READY},
    "copies": {"capture": CaptureOptions(backward_ready=True, copy=True)},
    "detached copies": {"capture": CaptureOptions(copy=True)},
    "detached": {"capture": CaptureOptions(detach_saved_activations=True)},
    "on the host": {"save": ["body.0"], "capture": CaptureOptions(output_device="cpu")},
    "witness": {"capture": CaptureOptions(witness=True)},
}


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("name", AROUND)
def test_a_training_step_is_what_it_is_without_a_capture(name: str, whole: bool) -> None:
    plain = list(train(lambda model: nullcontext(), whole=whole))
    under = list(train(lambda model: tl.capture(model, **AROUND[name]), whole=whole))
    for step, (expected, found) in enumerate(zip(plain, under, strict=True)):
        assert expected.keys() == found.keys()
        for key, value in expected.items():
            assert torch.equal(value, found[key]), (step, key)


def test_a_training_step_that_writes_to_disk(tmp_path: Path) -> None:
    runs = iter(range(9))
    plain = list(train(lambda model: nullcontext()))
    under = list(train(lambda model: tl.capture(model, storage=tl.to_disk(tmp_path / str(next(runs))))))
    for expected, found in zip(plain, under, strict=True):
        assert all(torch.equal(value, found[key]) for key, value in expected.items())


def test_blocks_drop_anew_and_traces_alike() -> None:
    drop, ones = nn.Dropout(0.5), torch.ones(64)
    with tl.capture(drop) as first:
        drop(ones)
    with tl.capture(drop) as second:
        drop(ones)
    assert not torch.equal(first.output, second.output)
    assert torch.equal(tl.trace(drop, ones).output, tl.trace(drop, ones).output)


def test_running_statistics_move_once_with_each_forward() -> None:
    torch.manual_seed(0)
    model, given = convolutions(), torch.randn(2, 2, 6, 6)
    other = copy.deepcopy(model)
    for _ in range(2):
        other(given)
    tl.trace(model, given)
    tl.extract(model, given, ["1"])
    assert_same(dict(model.named_buffers()), dict(other.named_buffers()))


def hooked(model: nn.Module) -> list[str]:
    """What the user's hooks are told, in order."""
    told: list[str] = []
    for name, module in model.named_children():
        module.register_full_backward_pre_hook(lambda *_, name=name: told.append(f"before {name}"))
        module.register_full_backward_hook(lambda *_, name=name: told.append(f"after {name}"))
        module.register_forward_hook(lambda *_, name=name: told.append(f"forward {name}"))
    for name, parameter in model.named_parameters():
        parameter.register_hook(lambda gradient, name=name: told.append(f"gradient of {name}"))
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: told.append(f"has {name}"))
    return told


def by_hand(model: nn.Module, given: Tensor, case: Case) -> list[Any]:
    """What the modules of a sequence gave to their caller, their hooks done."""
    found = {}
    for name, module in model.named_children():
        found[name] = given = module(given)
    return [found[site] for site in case.sites]


@pytest.mark.parametrize("get", [captured(), captured(READY), traced(save=False), recorded, extracted])
def test_hooks_of_the_user_are_called_as_without_a_capture(get: Callable[..., list[Any]]) -> None:
    told: list[list[str]] = []

    def build() -> nn.Module:
        model = perceptron()
        told.append(hooked(model))
        return model

    case = Case(build, lambda: torch.randn(5, 4, requires_grad=True), ("0", "1", "4"))
    assert_same(gradients(case, get), gradients(case, by_hand))
    assert {"forward 4", "before 1", "after 1", "gradient of 0.weight", "has 0.weight"} <= set(told[1])
    assert told[0] == told[1]


def test_hooks_that_change_gradients() -> None:
    case = UNTOUCHED["perceptron"]

    def build() -> nn.Module:
        model = perceptron()
        model[1].register_full_backward_hook(lambda _module, given, _out: (given[0] * 2,))
        return model

    changed = replace(case, build=build)
    found = gradients(changed, captured(READY))
    assert_same(found, gradients(changed, by_hand))
    plain = gradients(case, by_hand)
    assert found["0.weight"] is not None and plain["0.weight"] is not None
    assert not torch.equal(found["0.weight"], plain["0.weight"])


def test_recomputation_inside_the_block_is_no_part_of_what_is_kept() -> None:
    case = UNTOUCHED["checkpointed"]
    torch.manual_seed(0)
    model, given = case.build(), case.given()
    with tl.capture(model, save=list(case.sites), capture=READY) as t:
        model(given).square().sum().backward(retain_graph=True)
    assert [t.modules[site].num_calls for site in case.sites] == [1, 1, 1]
    model.zero_grad()
    loss_of(of_trace(t, case)).backward()
    found = {key: parameter.grad for key, parameter in model.named_parameters()}
    assert_same(found, gradients(case, by_hooks))


def test_a_reentrant_checkpoint_has_no_graph_inside() -> None:
    block = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    given = torch.randn(2, 4, requires_grad=True)
    with tl.capture(block, save=["0", "1"], capture=READY) as t:
        output = checkpoint(block, given, use_reentrant=True)
    assert not t.modules["0"].out.requires_grad
    output.sum().backward()
    assert block[0].weight.grad is not None


class Packed:
    """What autograd holds for a tensor that a backward needs."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor.detach()  # an output with its own node would make a cycle


def run_and_watch(**options: Any) -> tuple[tl.Trace, Tensor, list[weakref.ref[Packed]]]:
    """A capture, its model's output, and what the autograd graph of that holds."""
    held: list[weakref.ref[Packed]] = []

    def pack(tensor: Tensor) -> Packed:
        packed = Packed(tensor)
        held.append(weakref.ref(packed))
        return packed

    model, given = perceptron(), torch.randn(5, 4)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda packed: packed.tensor):
        with tl.capture(model, **options) as t:
            output = model(given)
    assert held and all(each() is not None for each in held)
    return t, output, held


def alive(held: list[weakref.ref[Packed]]) -> bool:
    return any(each() is not None for each in held)


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("save", [None, [], ["1"]])
def test_a_detached_trace_does_not_keep_the_graph(save: list[str] | None) -> None:
    detach = CaptureOptions(detach_saved_activations=True)
    trace, output, held = run_and_watch(save=save, capture=detach)
    assert output.requires_grad and not trace.output.requires_grad
    assert torch.equal(trace.output, output)
    if save != []:
        assert not trace["tanh_1"].out.requires_grad
    del output
    assert not alive(held)
    assert trace.output.shape == (5, 3)


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("options", [{}, {"save": ["1"], "capture": READY}, {"save": ["1"]}])
def test_a_trace_keeps_the_graph_until_it_is_freed(options: dict[str, Any]) -> None:
    trace, output, held = run_and_watch(**options)
    del output
    assert alive(held)
    trace.cleanup()
    assert not alive(held)


@pytest.mark.usefixtures("no_collector")
def test_a_loop_holds_the_values_of_one_step() -> None:
    model, held = WritesTwice(), []
    for _ in range(4):
        with tl.capture(model, save=["enter", "relu"], capture=READY) as trace:
            output = model(torch.randn(3, 4))
        entered, rectified = of_trace(trace, replace(OVERWRITTEN["twice"], sites=("enter", "relu")))
        (output.sum() + entered.sum() + rectified.sum()).backward()
        held += [weakref.ref(entered), weakref.ref(rectified), weakref.ref(output)]
    assert [each() is not None for each in held] == [False] * 9 + [True] * 3


SCALE = torch.full((4,), 2.0)


@pytest.mark.usefixtures("no_collector")
def test_locals_of_the_caller_are_not_held() -> None:
    given, other = torch.randn(3, 4), torch.randn(2)
    held = weakref.ref(given), weakref.ref(other)
    trace = tl.trace(lambda x: x * SCALE, given, save=[])
    trace.cleanup()
    del given, other
    assert [each() for each in held] == [None, None]


@pytest.mark.usefixtures("no_collector")
def test_a_loss_outlives_its_trace() -> None:
    trace, output, held = run_and_watch(save=["1"], capture=READY)
    loss = trace["tanh_1"].out.sum()
    trace.cleanup()
    del output
    assert alive(held)
    loss.backward()
    del loss
    assert not alive(held)


def test_inference_only_has_no_graph() -> None:
    model, given = perceptron(), torch.randn(5, 4)
    with tl.capture(model, capture=CaptureOptions(inference_only=True)) as t:
        output = model(given)
    assert not output.requires_grad and not t["linear_1"].out.requires_grad
    assert model(given).requires_grad


@pytest.mark.parametrize("other", ["inference_only", "detach_saved_activations"])
def test_options_that_contradict_backward_ready(other: str) -> None:
    with pytest.raises(OptionError, match=f"backward_ready and {other} contradict each other"):
        CaptureOptions(backward_ready=True, **{other: True})


@pytest.mark.parametrize(
    "run", [tl.trace, lambda model, _, **options: tl.capture(model, **options).__enter__()]
)
def test_backward_ready_can_not_be_without_gradients(run: Callable[..., Any]) -> None:
    with torch.no_grad(), pytest.raises(OptionError, match="gradients are off here"):
        run(perceptron(), torch.randn(5, 4), capture=READY)


def test_backward_ready_can_not_be_on_disk(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="backward_ready contradict"):
        tl.trace(perceptron(), torch.randn(5, 4), storage=tl.to_disk(tmp_path / "run"), capture=READY)
    assert list(tmp_path.iterdir()) == []


def test_a_parameter_that_a_step_changed_is_not_read_as_what_it_was() -> None:
    model, given = perceptron(), torch.randn(5, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with tl.capture(model, save=["1"], capture=READY) as t:
        model(given).sum().backward()
        optimizer.step()
    assert t["tanh_1"].out.shape == (5, 6)
    with pytest.raises(OverwrittenError, match="parameters are referenced, never copied"):
        t["linear_1"].args[1].out
