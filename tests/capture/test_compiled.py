"""Compiled code runs as Python during a capture, and is compiled afterwards as before."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl


def doubled(x: Tensor) -> Tensor:
    return torch.relu(x) * 2


class Compiled:
    """A compiled function that counts how often it was compiled."""

    def __init__(self, function: Any) -> None:
        self.compilations = 0
        self.function = torch.compile(function, backend=self._backend)

    def _backend(self, graph: Any, inputs: Any) -> Any:
        self.compilations += 1
        return graph.forward


@pytest.fixture
def compiled() -> Any:
    torch._dynamo.reset()
    yield Compiled(doubled)
    torch._dynamo.reset()


def test_a_compiled_function_is_seen_op_by_op_and_stays_compiled(compiled: Compiled) -> None:
    x = torch.randn(3)
    compiled.function(x)
    trace = tl.trace(lambda x: compiled.function(x), x)
    assert [op.type for op in trace.ops] == ["input", "relu", "mul", "output"]
    assert torch.equal(trace.output, compiled.function(x))
    assert compiled.compilations == 1


def test_overlapping_captures_give_the_stance_back(compiled: Compiled) -> None:
    stance = torch._dynamo.eval_frame._stance
    from torchlens._capture.compiled import compiled_code_eager

    with compiled_code_eager():
        with compiled_code_eager():
            pass
        assert torch._dynamo.eval_frame._stance.stance == "force_eager"
    assert torch._dynamo.eval_frame._stance == stance


def test_a_compiled_module_is_traced_as_the_module_it_wraps() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    x = torch.randn(2, 3)
    trace = tl.trace(torch.compile(model, backend="eager"), x)
    assert [module.address for module in trace.modules] == ["", "0", "1"]
    assert torch.equal(trace.output, model(x))
