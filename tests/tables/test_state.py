"""Parameters and buffers, tied, lazy, empty and moved."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import torchlens as tl
from tests import models


class Lazy(nn.Module):
    """The lazy layer is never reached."""

    def __init__(self) -> None:
        super().__init__()
        self.lazy = nn.LazyLinear(3)
        self.register_buffer("nothing", None)
        self.register_buffer("scratch", torch.zeros(2, 3, dtype=torch.int64), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return x + 1


def rows(trace: Any, name: str) -> dict[str, dict[str, Any]]:
    return {row["address"]: row for row in trace.tables[name].to_pylist()}


def test_a_parameter_that_a_lazy_module_has_yet_to_fill() -> None:
    row = rows(tl.trace(Lazy(), torch.ones(2)), "params")["lazy.weight"]
    assert (row["shape"], row["numel"], row["nbytes"]) == (None, None, None)
    assert (row["dtype"], row["device"], row["trainable"], row["ops"]) == ("float32", "cpu", True, [])


def test_buffers_that_hold_little() -> None:
    found = rows(tl.trace(Lazy(), torch.ones(2)), "buffers")
    row = found["scratch"]
    assert (row["shape"], row["dtype"], row["nbytes"]) == ([2, 3], "int64", 48)
    assert (row["persistent"], row["versions"]) == (False, [])
    assert [found["nothing"][name] for name in ("shape", "dtype", "device", "nbytes")] == [None] * 4


def test_ties_are_one_row() -> None:
    trace = tl.trace(models.TiedWeights(), torch.tensor([[1, 2, 3]]))
    (row,) = trace.tables.params.to_pylist()
    assert row["addresses"] == list(trace.params[0].addresses) and len(row["addresses"]) == 2
    assert row["ops"] == ["embedding_1:1", "linear_1:1"]
    assert [op["params"] for op in trace.to_arrow().to_pylist() if op["params"]] == [[row["address"]]] * 2


def test_a_buffers_versions_are_ops() -> None:
    trace = tl.trace(models.CountsInPlace(), torch.ones(3, 4))
    for row in trace.tables.buffers.to_pylist():
        assert row["versions"] == [op.label for op in trace.buffers[row["address"]].versions]
    kinds = {op["label"]: op["kind"] for op in trace.to_arrow().to_pylist()}
    assert {kinds[label] for row in trace.tables.buffers.to_pylist() for label in row["versions"]} == {
        "buffer"
    }
