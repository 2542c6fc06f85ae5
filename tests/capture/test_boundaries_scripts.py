"""TorchScript inside a model: a module is one op, a function's result is of unknown origin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests.programs.agreement import agrees
from tests.programs.reading import floats, op_labels, parent_labels
from torchlens.errors import OverwrittenError

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit")


class Around(nn.Module):
    """A linear layer, then a part of TorchScript."""

    def __init__(self, script: Callable[[nn.Module], Any], part: nn.Module) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.part = script(part)

    def forward(self, x: Tensor) -> Tensor:
        return self.part(self.linear(x)) + 1


def traced_script(part: nn.Module) -> Any:
    return torch.jit.trace(part, floats(2, 3))


@pytest.mark.parametrize("with_gradients", [False, True], ids=["no grad", "grad"])
@pytest.mark.parametrize("script", [torch.jit.script, traced_script], ids=["scripted", "traced"])
def test_a_module_is_one_op_in_its_own_call(script: Callable[..., Any], with_gradients: bool) -> None:
    trace = agrees(
        lambda: Around(script, nn.Sequential(nn.Linear(3, 3), nn.ReLU())), floats(2, 3), grad=with_gradients
    )
    assert op_labels(trace) == "linear_1:1 torchscript_1:1 add_1:1"
    assert trace["torchscript_1:1"].kind == "boundary"
    assert trace["torchscript_1:1"].module.address == "part"
    assert parent_labels(trace["torchscript_1:1"]) == ["linear_1:1"]


class Several(nn.Module):
    def forward(self, x: Tensor, y: Tensor):
        return x.sin(), {"cos": y.cos()}


class Writes(nn.Module):
    def forward(self, x: Tensor):
        x.add_(1)
        return x.sin()


def several(x: Tensor) -> Tensor:
    first, rest = SEVERAL(x * 1, y=x * 2)
    return first + rest["cos"]


def written(x: Tensor) -> Tensor:
    y = x * 1
    return WRITES(y) + y


SEVERAL = torch.jit.script(Several())
WRITES = torch.jit.script(Writes())


def test_several_outputs_and_keywords() -> None:
    trace = agrees(lambda: several, floats(2, 3))
    assert op_labels(trace) == "mul_1:1 mul_2:1 torchscript_1:1 torchscript_2:1 add_1:1"
    assert parent_labels(trace["torchscript_1:1"]) == ["mul_1:1", "mul_2:1"]


def test_an_argument_that_it_writes_is_an_output_and_its_older_value_is_gone() -> None:
    trace = agrees(lambda: written, floats(2, 3))
    assert parent_labels(trace["add_1:1"]) == ["torchscript_1:1", "torchscript_2:1"]
    assert torch.equal(trace["torchscript_2:1"].out, floats(2, 3) + 1)
    with pytest.raises(OverwrittenError, match="TorchScript wrote it"):
        _ = trace["mul_1:1"].out


@torch.jit.script
def doubled_sine(x: Tensor):
    return x.sin() * 2


def test_a_function_gives_a_tensor_of_unknown_origin() -> None:
    trace = agrees(lambda: lambda x: doubled_sine(x * 1) + 1, floats(3), verified=False)
    assert trace.provenance.verification_reason == "unknown_origin"
    assert op_labels(trace) == "mul_1:1 source_1:1 add_1:1"


def test_with_the_witness_a_function_is_one_op() -> None:
    options = tl.options.CaptureOptions(witness=True)
    trace = tl.trace(lambda x: doubled_sine(x * 1) + 1, floats(3), capture=options)
    assert trace.provenance.verified
    (made,) = (op for op in trace.ops if op.kind == "boundary")
    assert parent_labels(made) == ["mul_1:1"]
    assert parent_labels(trace["add_1:1"]) == [made.label]
