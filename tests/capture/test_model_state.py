"""Modules, parameters and buffers by address, also where a forward exchanges them."""

from __future__ import annotations

from torch import Tensor, nn

import torchlens as tl
from tests.programs.reading import floats, lint


class Offloads(nn.Linear):
    """Holds an empty weight, and puts the real one in its place while it runs."""

    def __init__(self) -> None:
        super().__init__(4, 4, bias=False)
        self.kept = [self.weight.detach().clone()]
        self.unload()

    def unload(self) -> None:
        self._parameters["weight"] = nn.Parameter(self.kept[0].to("meta"))

    def forward(self, x: Tensor) -> Tensor:
        self._parameters["weight"] = nn.Parameter(self.kept[0])
        y = super().forward(x)
        self.unload()
        return y


def test_a_parameter_that_is_exchanged_while_the_model_runs_is_listed_once() -> None:
    model = nn.Sequential(Offloads(), Offloads())
    with tl.capture(model) as trace:
        for _ in range(2):
            y = model(floats(2, 4))
    lint(trace)
    assert [param.address for param in trace.params] == ["0.weight", "1.weight"]
    assert [param.value.device.type for param in trace.params] == ["meta", "meta"]
    assert (trace.outputs[-1].out == y).all()
    assert [op.params[0].address for op in trace.ops if op.type == "linear"] == ["0.weight", "1.weight"] * 2
    assert trace.check(), trace.check()


class ReadsItsWeightThroughAView(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4, bias=False)
        self.view = self.inner.weight.detach()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x @ self.view)


def test_another_view_of_a_parameter_reads_the_parameter() -> None:
    trace = tl.trace(ReadsItsWeightThroughAView(), floats(2, 4))
    assert [param.address for param in trace["matmul_1"].params] == ["inner.weight"]
    assert [op.kind for op in trace.ops] == ["input", "call", "call", "output"]
    assert trace.check()


def test_one_of_two_tied_parameters_that_is_exchanged_keeps_its_address() -> None:
    class Unties(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
            self.second.weight = self.first.weight

        def forward(self, x: Tensor) -> Tensor:
            self.second.weight = nn.Parameter(self.first.weight.detach() * 2)
            return self.second(self.first(x))

    trace = tl.trace(Unties(), floats(2, 4))
    assert [param.addresses for param in trace.params] == [("first.weight", "second.weight")]
