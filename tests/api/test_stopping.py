"""`stop_after=`: the forward ends right after a site."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from torchlens.errors import AmbiguousKeyError, InputError, MissingKeyError, NotReachedError


class Steps(nn.Module):
    """Three steps of a loop, then a head; it notes how far it came."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Linear(4, 4)
        self.head = nn.Sequential(nn.Linear(4, 2), nn.ReLU())
        self.came: list[str] = []

    def forward(self, x: Tensor) -> Tensor:
        for step in range(3):
            x = torch.tanh(self.cell(x))
            self.came.append(f"step {step}")
        x = self.head(x)
        self.came.append("head")
        return x * 2


X = torch.ones(1, 4)


@pytest.mark.parametrize(
    ("site", "last", "came"),
    [
        ("tanh_1", "tanh_1:1", []),
        ("tanh_1:2", "tanh_1:2", ["step 0"]),
        ("cell", "linear_1:1", []),
        ("cell:3", "linear_1:3", ["step 0", "step 1"]),
        (tl.func("relu"), "relu_1:1", ["step 0", "step 1", "step 2"]),
        ("head", "relu_1:1", ["step 0", "step 1", "step 2"]),
        (tl.in_module("head") & tl.func("linear"), "linear_2:1", ["step 0", "step 1", "step 2"]),
        (tl.where(lambda op: op.shape == (1, 2)), "linear_2:1", ["step 0", "step 1", "step 2"]),
    ],
)
@pytest.mark.parametrize("save", [None, [], ["tanh_1"]], ids=["all", "none", "some"])
def test_nothing_runs_after_the_site(site: Any, last: str, came: list[str], save: Any) -> None:
    model = Steps()
    full = tl.trace(Steps(), X)
    trace = tl.trace(model, X, save=save, stop_after=site)
    assert model.came == came
    assert trace.status == "halted"
    assert trace.ops[-1].label == last
    assert [op.label for op in trace.ops] == [op.label for op in full.ops][: len(trace.ops)]
    assert "halted" in str(trace.summary())
    with pytest.raises(tl.errors.IncompleteError, match="it was halted"):
        _ = trace.output
    assert trace.check(), trace.check()


def test_says_where_it_stopped() -> None:
    assert tl.trace(Steps(), X, stop_after="tanh_1:2").halted_at.label == "tanh_1:2"
    assert tl.trace(Steps(), X, stop_after="cell:2").halted_at.label == "cell:2"
    assert tl.trace(Steps(), X).halted_at is None


def test_ends_the_block() -> None:
    model, ran = Steps(), []
    with tl.capture(model, stop_after="tanh_1:2") as t:
        model(X)
        ran.append("after the call")
    assert not ran
    assert t.status == "halted"
    assert t["tanh_1"].num_passes == 2


class Swallows(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        try:
            return torch.relu(x) + 1
        except BaseException:
            y = torch.zeros(1)  # made, but not recorded: a `finally` may have to put something back
        return y + 1  # which raises again


class SwallowsAndReturns(nn.Module):
    def forward(self, x: Tensor) -> Tensor | str:
        try:
            return torch.relu(x) + 1
        except BaseException:
            return "nothing"


class RaisesInstead(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        try:
            return torch.relu(x) + 1
        except BaseException as error:
            raise RuntimeError("torch failed") from error


class InGenerator(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        def steps() -> Any:
            for _ in range(3):
                yield torch.relu(x)

        return sum(steps())


class InFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return torch.relu(x) + 1

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


@pytest.mark.parametrize(
    "build", [Swallows, SwallowsAndReturns, RaisesInstead, InGenerator, lambda: InFunction.apply]
)
def test_ends_whatever_the_code_does_with_exceptions(build: Callable[[], Any]) -> None:
    trace = tl.trace(build(), X, stop_after="relu_1")
    assert trace.status == "halted"
    assert [op.label for op in trace.ops] == ["input_1:1", "relu_1:1"]


def test_an_exception_of_its_own_comes_through() -> None:
    def fails(x: Tensor) -> Tensor:
        raise ValueError("before the site")

    with pytest.raises(ValueError, match="before the site"):
        tl.trace(fails, X, stop_after="relu_1")


def test_a_module_with_hooks_of_its_own_stops_when_they_are_done() -> None:
    model = Steps()
    model.cell.register_forward_hook(lambda module, args, output: torch.relu(output))
    trace = tl.trace(model, X, stop_after="cell")
    assert trace.ops[-1].label == "relu_1:1"
    assert torch.equal(trace.module_calls["cell:1"].output, trace["relu_1:1"].out)


def test_stops_inside_a_transform_only_at_its_end() -> None:
    def model(x: Tensor) -> Tensor:
        return torch.func.vmap(lambda row: torch.tanh(row) * 2)(x) + 1

    trace = tl.trace(model, torch.ones(3, 4), stop_after="vmap_1")
    assert [op.label for op in trace.ops] == ["input_1:1", "vmap_1:1"]
    assert trace.status == "halted"


def test_a_module_that_returns_no_tensor_stops_too() -> None:
    class Logs(nn.Module):
        def forward(self, x: Tensor) -> None:
            torch.tanh(x)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.logs = Logs()

        def forward(self, x: Tensor) -> Tensor:
            self.logs(x)
            return x * 2

    trace = tl.trace(Net(), X, stop_after="logs")
    assert [op.label for op in trace.ops] == ["input_1:1", "tanh_1:1"]
    assert trace.halted_at.label == "logs:1"


@pytest.mark.parametrize(
    ("site", "error", "message"),
    [
        ("tanh_1:9", MissingKeyError, "nearest: 'tanh_1'"),
        (tl.label("sin_1"), MissingKeyError, "no layer or op is called 'sin_1'"),
        (tl.func("sin"), NotReachedError, r"the forward never came to func\('sin'\)"),
        (tl.func("softmax") & tl.output(), NotReachedError, "never came to"),
        ("head.7", MissingKeyError, "nearest: 'head"),
        (tl.module("cell:9"), MissingKeyError, "nearest: 'cell:3'"),
        ("buffer_1", InputError, "name the op that writes it"),
        (~tl.module("cell"), InputError, "known only when the forward is over"),
        (["cell"], InputError, "give a label, an address or a selector"),
    ],
)
def test_a_site_that_never_runs_is_an_error(site: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        tl.trace(Steps(), X, stop_after=site)


def test_an_address_that_does_not_exist_is_refused_before_anything_runs() -> None:
    model = Steps()
    with pytest.raises(MissingKeyError, match="nearest: 'cell'"):
        tl.trace(model, X, stop_after="cel")
    assert not model.came


def test_a_function_that_torch_wrote_in_python_says_so() -> None:
    with pytest.raises(NotReachedError, match=r"write tl\.in_func\('normalize'\)"):
        tl.trace(lambda x: torch.nn.functional.normalize(x), X, stop_after=tl.func("normalize"))


def test_a_key_that_is_a_label_and_an_address_is_an_error() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.relu_1 = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.relu_1(torch.relu(x))

    with pytest.raises(AmbiguousKeyError, match=r"tl\.label\('relu_1'\)"):
        tl.trace(Named(), X, save=["relu_1"])
    kept = tl.trace(Named(), X, save=[tl.module("relu_1")])
    assert kept["linear_1"].out.shape == (1, 4)


def test_random_state_is_given_back() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    tl.trace(nn.Sequential(nn.Dropout(), nn.ReLU()).train(), X, stop_after="dropout_1")
    assert torch.equal(torch.get_rng_state(), before)
