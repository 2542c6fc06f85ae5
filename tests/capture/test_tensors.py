"""What a tensor that enters a call is: an input, a parameter, a buffer, a source, or another view of one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import torchlens as tl

OUTSIDE = torch.zeros(4)
FIRST, SECOND = OUTSIDE[:2], OUTSIDE[2:]


def labels(ops: Any) -> list[str]:
    return [op.label for op in ops]


def test_disjoint_outside_views_of_one_storage_are_two_sources() -> None:
    trace = tl.trace(lambda x: x * FIRST + x * SECOND, torch.ones(2))
    sources = {op.name: op.label for op in trace.ops if op.kind == "source"}
    assert sources == {"FIRST": "source_1:1", "SECOND": "source_2:1"}
    assert [labels(op.parents)[1] for op in trace.ops if op.type == "mul"] == ["source_1:1", "source_2:1"]


def test_arguments_of_a_call_that_raised_are_not_taken_for_later_ones() -> None:
    one, other = torch.ones(2), torch.ones(2)

    def run(x: Tensor) -> Tensor:
        n = x.shape[0]
        try:
            x.reshape((n, n + 4))
        except RuntimeError:
            pass
        return torch.stack((one, other)) + x

    trace = tl.trace(run, torch.ones(2))
    assert labels(trace["stack_1"].parents) == ["source_1:1", "source_2:1"]


def test_a_parameter_made_from_a_computed_tensor_comes_from_its_op() -> None:
    class MakesAParameter(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            self.weight = nn.Parameter(x * 2)
            return self.weight + 1

    trace = tl.trace(MakesAParameter(), torch.ones(3))
    assert labels(trace["add_1"].parents) == ["mul_1:1"]
    assert [param.address for param in trace["add_1"].params] == ["weight"]


def test_a_buffer_shared_by_two_modules_parts_when_one_assigns_it() -> None:
    class Counts(nn.Module):
        def __init__(self, count: Tensor) -> None:
            super().__init__()
            self.register_buffer("count", count)

        def forward(self, x: Tensor) -> Tensor:
            self.count = self.count + 1
            return x + self.count

    shared = torch.zeros(1)
    model = nn.Sequential(Counts(shared), Counts(shared), Counts(shared))
    trace = tl.trace(model, torch.ones(1))
    finals = {buffer.address: buffer.final_value for buffer in trace.buffers}
    assert set(finals) == {"0.count", "1.count", "2.count"}
    assert all(torch.equal(value, torch.ones(1)) for value in finals.values())


def test_a_parameter_registered_while_the_model_runs_is_listed() -> None:
    class Grows(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            self.layer = nn.Linear(2, 2)
            return self.layer(x)

    trace = tl.trace(Grows(), torch.ones(1, 2))
    assert {param.address for param in trace.params} == {"layer.weight", "layer.bias"}


def test_a_write_that_reaches_no_mode_makes_the_trace_unverified() -> None:
    def run(x: Tensor) -> Tensor:
        z = torch.complex(x, x)
        z.imag = x * 3
        return torch.view_as_real(z)

    trace = tl.trace(run, torch.ones(2))
    assert trace.provenance.verification_reason == "unexplained_write"
    assert "changed in place by something that was not seen" in str(trace.provenance)


def test_writes_that_are_seen_leave_a_trace_verified() -> None:
    def run(x: Tensor) -> Tensor:
        table = torch.zeros(5, 2)
        for row in range(5):
            table[row].copy_(x)
            table[:, 1].add_(1)
        table.unsqueeze_(0)
        return table

    trace = tl.trace(run, torch.ones(2))
    assert trace.provenance.verified
