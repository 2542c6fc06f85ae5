"""Wrappers that only decide how a model is run are taken off; what is captured is the module inside."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests.programs.reading import floats, lint, op_labels
from torchlens._capture.unwrapping import root_of, unwrapped


class Scales(nn.Module):
    """Takes a keyword argument."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        return self.inner(x) * scale


def compiled(model: nn.Module) -> Any:
    return torch.compile(model, backend="eager")


WRAPPERS = [
    pytest.param(nn.DataParallel, id="DataParallel"),
    pytest.param(lambda model: nn.DataParallel(nn.DataParallel(model)), id="DataParallel twice"),
    pytest.param(compiled, id="compiled"),
    pytest.param(lambda model: nn.DataParallel(compiled(model)), id="DataParallel of compiled"),
    pytest.param(lambda model: compiled(nn.DataParallel(model)), id="compiled DataParallel"),
]
Wrap = Callable[[nn.Module], Any]


@pytest.mark.parametrize("wrap", WRAPPERS)
def test_the_module_inside_is_the_root(wrap: Wrap) -> None:
    model, x = Scales(), floats(3, 4)
    wrapped = wrap(model)
    trace = tl.trace(wrapped, x, input_kwargs={"scale": 2.0})
    lint(trace)
    assert trace.provenance.verified
    assert torch.equal(trace.output, wrapped(x, scale=2.0))
    assert [module.address for module in trace.modules] == ["", "inner"]
    assert [call.label for call in trace.module_calls] == [":1", "inner:1"]
    assert [param.address for param in trace.params] == ["inner.weight", "inner.bias"]
    assert trace.modules[""].type == "Scales"


@pytest.mark.parametrize("wrap", WRAPPERS)
def test_from_under_a_partial_too(wrap: Wrap) -> None:
    trace = tl.trace(partial(partial(wrap(Scales())), scale=3.0), floats(3, 4))
    assert [module.address for module in trace.modules] == ["", "inner"]
    assert op_labels(trace) == "linear_1:1 mul_1:1"
    assert trace.module_calls[":1"].kwargs == {"scale": 3.0}


def test_the_bound_forward_of_a_data_parallel_model_calls_the_module_inside() -> None:
    model = nn.DataParallel(Scales())
    for method in (model.forward, model.__call__):
        trace = tl.trace(method, floats(3, 4))
        assert [call.label for call in trace.module_calls] == [":1", "inner:1"]
    assert unwrapped(model.state_dict) == model.state_dict


@pytest.mark.parametrize("wrap", WRAPPERS)
def test_in_a_block_the_wrapper_is_called_and_the_module_inside_is_the_root(wrap: Wrap) -> None:
    model, x = Scales(), floats(3, 4)
    wrapped = wrap(model)
    with tl.capture(wrapped) as trace:
        y = wrapped(x)
    lint(trace)
    assert trace.provenance.verified
    assert torch.equal(trace.outputs[0].out, y)
    assert trace["linear_1"].module.address == "inner"
    assert trace.modules[""].num_calls == 1
    with tl.capture({"model": wrapped}) as trace:
        wrapped(x)
    assert trace["linear_1"].module.address == "model.inner"


def test_inside_a_model_a_data_parallel_module_is_one_like_others() -> None:
    model = nn.Sequential(nn.DataParallel(nn.Linear(4, 4)), nn.ReLU())
    trace = tl.trace(model, floats(3, 4))
    lint(trace)
    assert [call.label for call in trace.module_calls] == [":1", "0:1", "0.module:1", "1:1"]
    assert trace["linear_1"].module.address == "0.module"


@pytest.mark.parametrize(
    "model",
    [nn.Linear(2, 2), torch.relu, Scales, len, partial(torch.add, alpha=2)],
    ids=["module", "function", "class", "builtin", "partial"],
)
def test_anything_else_is_as_it_was(model: Any) -> None:
    assert unwrapped(model) is model


def test_the_module_behind_a_callable() -> None:
    model = Scales()
    for callable_ in (model, model.forward, partial(model), partial(partial(model.forward), scale=2.0)):
        assert root_of(callable_) is model
    for callable_ in (torch.relu, Scales, [].append, partial(torch.relu), lambda x: model(x)):
        assert root_of(callable_) is None
