"""Models with losses on inner values, and every way to get these values: by hooks and by captures."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

import torchlens as tl
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
