"""Training under a capture: losses of kept values go backward into the model, and nothing else changes."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

import torchlens as tl
from torchlens.errors import OptionError, OverwrittenError
from torchlens.options import CaptureOptions

READY = CaptureOptions(backward_ready=True)


class Tied(nn.Module):
    """The first and the last layer share one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 5)
        self.mix = nn.Linear(5, 5)
        self.head = nn.Linear(5, 7, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(torch.tanh(self.mix(self.embed(tokens))))


class Recurrent(nn.Module):
    """Each of its modules is called once a step."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(4, 4)
        self.recur = nn.Linear(4, 4, bias=False)
        self.tanh = nn.Tanh()

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.zeros_like(x[:, 0])
        for step in range(x.shape[1]):
            hidden = self.tanh(self.enter(x[:, step]) + self.recur(hidden))
        return hidden


class Checkpointed(nn.Module):
    """The blocks run again while the gradients are computed."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x


class Double(torch.autograd.Function):
    """An operation with a backward of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return 3 * gradient * ctx.saved_tensors[0]


class Custom(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return Double.apply(x)


class WritesThroughViews(nn.Module):
    """A part is written by way of the whole, and the whole by way of a part."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(4, 4)
        self.part = nn.Flatten(0)  # gives a view
        self.leave = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        whole = self.enter(x)
        flat = self.part(whole)
        whole.mul_(2)
        flat[1:3] = 0
        return self.leave(whole)


class WritesTwice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter, self.leave = nn.Linear(4, 4), nn.Linear(4, 2)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.leave(self.relu(self.enter(x).mul_(0.5).add_(-0.1)))


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(inplace=True),
        nn.Conv2d(3, 3, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(12, 2),
    )  # fmt: skip


def perceptron(middle: nn.Module | None = None) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 6), middle or nn.Tanh(), nn.Linear(6, 6), nn.GELU(), nn.Linear(6, 3))


def frozen() -> nn.Module:
    model = perceptron()
    model[2].requires_grad_(False)
    return model


def normed() -> nn.Module:
    model = perceptron()
    nn.utils.parametrizations.weight_norm(model[0])
    return model


def x(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(shape)


@dataclass(frozen=True)
class Case:
    """A model, its input, and the modules whose outputs make up the loss."""

    build: Callable[[], nn.Module]
    given: Callable[[], Tensor]
    sites: tuple[str, ...]
    context: Callable[[], AbstractContextManager[Any]] = field(default=nullcontext)


def encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(8, 2, dim_feedforward=8, dropout=0.0, batch_first=True)


UNTOUCHED = {
    "perceptron": Case(perceptron, x(5, 4), ("0", "1", "4")),
    "the last layer only": Case(perceptron, x(5, 4), ("4",)),
    "tied weights": Case(Tied, lambda: torch.arange(6).view(2, 3), ("embed", "head")),
    "frozen part": Case(frozen, x(5, 4), ("1", "2", "3")),
    "custom backward": Case(lambda: perceptron(Custom()), x(5, 4), ("0", "3")),
    "parametrized": Case(normed, x(5, 4), ("0", "2")),
    "lstm": Case(lambda: nn.Sequential(nn.Linear(4, 4), nn.LSTM(4, 3)), x(5, 4), ("0", "1")),
    "encoder": Case(encoder, x(2, 3, 8), ("self_attn", "norm1", "linear2")),
    "checkpointed": Case(Checkpointed, x(5, 4), ("blocks.0.0", "blocks.1", "blocks.2.0")),
    "autocast": Case(
        perceptron, x(5, 4), ("0", "3", "4"), lambda: torch.autocast("cpu", torch.bfloat16)
    ),
}  # fmt: skip
OVERWRITTEN = {
    "in-place ReLUs": Case(convolutions, x(2, 2, 6, 6), ("0", "1", "2", "3", "4")),
    "views": Case(WritesThroughViews, x(3, 4), ("enter", "part", "leave")),
    "twice": Case(WritesTwice, x(3, 4), ("enter", "relu")),
    "autocast and writes": Case(
        convolutions, x(2, 2, 6, 6), ("0", "1", "3"), lambda: torch.autocast("cpu", torch.bfloat16)
    ),
}


def tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor)]


def loss_of(values: list[Any]) -> Tensor:
    flat = [tensor for value in values for tensor in tensors(value)]
    return sum(
        (place * value.float().square().mean() for place, value in enumerate(flat, 1)), torch.zeros(())
    )


def by_hooks(model: nn.Module, given: Tensor, case: Case) -> list[Any]:
    """What the modules gave, without torchlens: copied at once, as something may write over it."""
    found: dict[str, Any] = {}

    def keep(site: str) -> Any:
        return lambda _module, _args, out: None if site in found else found.update({site: copied(out)})

    hooks = [model.get_submodule(site).register_forward_hook(keep(site)) for site in case.sites]
    with case.context():
        model(given)
    for hook in hooks:
        hook.remove()
    return [found[site] for site in case.sites]


def copied(value: Any) -> Any:
    return pytree.tree_map_only(Tensor, Tensor.clone, value)


def of_trace(trace: tl.Trace, case: Case) -> list[Any]:
    return [trace.modules[site].out for site in case.sites]


def traced(capture: CaptureOptions | None = None, save: bool = True) -> Callable[..., list[Any]]:
    def get(model: nn.Module, given: Tensor, case: Case) -> list[Any]:
        with case.context():
            trace = tl.trace(model, given, save=list(case.sites) if save else None, capture=capture)
        return of_trace(trace, case)

    return get


def captured(capture: CaptureOptions | None = None, save: bool = True) -> Callable[..., list[Any]]:
    def get(model: nn.Module, given: Tensor, case: Case) -> list[Any]:
        with case.context(), tl.capture(model, save=list(case.sites) if save else None, capture=capture) as t:
            model(given)
        return of_trace(t, case)

    return get


def recorded(model: nn.Module, given: Tensor, case: Case) -> list[Any]:
    with case.context():
        trace = tl.record(model, given, save=list(case.sites)).to_trace()
    return of_trace(trace, case)


def plucked(model: nn.Module, given: Tensor, case: Case) -> list[Any]:
    with case.context():
        return [tl.pluck(model, given, site) for site in case.sites]


def extracted(model: nn.Module, given: Tensor, case: Case) -> list[Any]:
    with case.context():
        found = tl.extract(model, given, list(case.sites))
    return [found[site] for site in case.sites]


READY_PATHS = {
    "trace, ready": traced(READY, save=False),
    "trace save=, ready": traced(READY),
    "capture, ready": captured(READY, save=False),
    "capture save=, ready": captured(READY),
    "copies": traced(CaptureOptions(backward_ready=True, copy=True)),
    "copies of everything": captured(CaptureOptions(backward_ready=True, copy=True), save=False),
    "on the host": captured(CaptureOptions(backward_ready=True, output_device="cpu")),
    "copies on the host": captured(CaptureOptions(backward_ready=True, output_device="cpu", copy=True)),
}
PLAIN_PATHS = {
    "trace": traced(save=False),
    "trace save=": traced(),
    "capture": captured(save=False),
    "capture save=": captured(),
    "on the host, plain": traced(CaptureOptions(output_device="cpu")),
    "record": recorded,
    "extract": extracted,
}


def gradients(case: Case, get: Callable[..., list[Any]]) -> dict[str, Tensor | None]:
    torch.manual_seed(0)
    model, given = case.build(), case.given()
    loss_of(get(model, given, case)).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def assert_same(found: dict[str, Tensor | None], expected: dict[str, Tensor | None]) -> None:
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        if gradient is None:
            assert found[name] is None, name
        else:
            assert found[name] is not None and torch.equal(found[name], gradient), name


def assert_close(found: dict[str, Tensor | None], expected: dict[str, Tensor | None]) -> None:
    """The same sums, perhaps added up in another order."""
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, msg=name)


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
