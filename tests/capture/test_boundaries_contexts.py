"""Settings of torch that a forward runs under or changes: autocast, inference mode, defaults, other modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.amp import custom_bwd, custom_fwd
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import torchlens as tl
from tests.programs.agreement import agrees
from tests.programs.reading import floats, op_labels

WEIGHT = floats(3, 3)


def mixed(x: Tensor) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        y = x @ WEIGHT
        with torch.autocast("cpu", enabled=False):
            z = y.float() @ WEIGHT
        return y, z, F.softmax(y, -1), F.linear(x, WEIGHT)


class MixedModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.norm = nn.LayerNorm(3)
        self.attention = nn.MultiheadAttention(3, 3)

    def forward(self, x: Tensor) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            y = self.norm(self.linear(x))
            return self.attention(y, y, y)[0], self.linear(y)


class Full(torch.autograd.Function):
    """Computes in single precision whatever autocast says."""

    @staticmethod
    @custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    @custom_bwd(device_type="cpu")
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        a, b = ctx.saved_tensors
        return g @ b.T, a.T @ g


def full(x: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return Full.apply(x @ WEIGHT, WEIGHT) + 1


def half(x: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.float16):
        return (x @ WEIGHT).float()


@pytest.mark.parametrize("with_gradients", [False, True], ids=["no grad", "grad"])
@pytest.mark.parametrize(
    "build",
    [lambda: mixed, MixedModel, lambda: full, lambda: half],
    ids=["nested and disabled", "modules", "custom_fwd", "float16"],
)
def test_autocast(build: Callable[[], Any], with_gradients: bool) -> None:
    agrees(build, floats(4, 3), grad=with_gradients)


def test_each_op_knows_the_autocast_that_it_ran_under() -> None:
    trace = agrees(lambda: mixed, floats(4, 3))
    assert [dict(trace[f"matmul_{n}:1"].autocast) for n in (1, 2)] == [{"cpu": "bfloat16"}, {}]
    assert [trace[f"matmul_{n}:1"].dtype for n in (1, 2)] == [torch.bfloat16, torch.float32]


def inferred(x: Tensor) -> Tensor:
    with torch.inference_mode():
        y = x * 2
        y.add_(1)
        y[0].mul_(3)
        z = y.clone()
    return z.clone() + 1


class Inferring(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Sequential(nn.Conv1d(3, 3, 1), nn.BatchNorm1d(3), nn.ReLU(inplace=True))

    def forward(self, x: Tensor) -> Tensor:
        with torch.inference_mode():
            return self.part(x[..., None])


@torch.inference_mode()
def decorated(x: Tensor) -> Tensor:
    return x.sin().cos_()


@pytest.mark.parametrize(
    "build", [lambda: inferred, Inferring, lambda: decorated], ids=["part", "module", "all"]
)
def test_inference_mode(build: Callable[[], Any]) -> None:
    agrees(build, floats(4, 3))


def test_values_overwritten_in_inference_mode() -> None:
    trace = agrees(lambda: inferred, floats(2, 3))
    assert torch.equal(trace["mul_1:1"].out, floats(2, 3) * 2)
    assert torch.equal(trace["add_1:1"].out, floats(2, 3) * 2 + 1)


def test_an_input_made_in_inference_mode() -> None:
    with torch.inference_mode():
        x = floats(2, 3)
    trace = tl.trace(lambda x: x.clone().add_(1) * 2, x)
    assert op_labels(trace) == "clone_1:1 add_1:1 mul_1:1"
    assert trace.check()


def default_dtype(x: Tensor) -> Any:
    torch.set_default_dtype(torch.float64)
    try:
        return torch.zeros(3) + x, torch.tensor(1.5), torch.arange(3.0)
    finally:
        torch.set_default_dtype(torch.float32)


def default_device(x: Tensor) -> Any:
    torch.set_default_device("cpu")
    try:
        return torch.zeros(3) + F.softmax(x * torch.ones(3), -1)
    finally:
        torch.set_default_device(None)


def on_meta(x: Tensor) -> Any:
    with torch.device("meta"):
        return nn.Linear(3, 3)(torch.zeros(4, 3) + x.to("meta"))


@pytest.mark.parametrize("program", [default_dtype, default_device, on_meta], ids=lambda p: p.__name__)
def test_defaults(program: Callable[[Tensor], Any]) -> None:
    agrees(lambda: program, floats(4, 3))


# ---- others who look on --------------------------------------------------------------------------


class Passing(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class PassingOperators(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def under_a_mode(x: Tensor) -> Tensor:
    with Passing():
        return F.normalize(x) + 1


def under_a_dispatch_mode(x: Tensor) -> Tensor:
    with PassingOperators():
        return F.normalize(x).add_(1) + F.softmax(x, -1)


@pytest.mark.parametrize("program", [under_a_mode, under_a_dispatch_mode], ids=lambda p: p.__name__)
def test_modes_inside(program: Callable[[Tensor], Any]) -> None:
    trace = agrees(lambda: program, floats(4, 3))
    assert "truediv_1:1" in op_labels(trace)
    assert trace.notes == ()


class Plain(Tensor):
    """Takes part in torch functions as any subclass does."""


@pytest.mark.parametrize("looker", ["mode", "subclass"])
def test_a_function_kept_whole_for_others_is_noted(looker: str) -> None:
    x = floats(2, 3)
    if looker == "subclass":
        trace = tl.trace(lambda x: F.normalize(x) + 1, x.as_subclass(Plain))
    else:
        with Passing():
            trace = tl.trace(lambda x: F.normalize(x) + 1, x)
    assert op_labels(trace) == "normalize_1:1 add_1:1"
    (note,) = trace.notes
    assert note.startswith(
        "normalize ran as one op each: another function mode or a tensor subclass looks on"
    )
    assert trace.provenance.verified
