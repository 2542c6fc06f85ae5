"""Layers of several passes: what they share, what is summed, what is null."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import torchlens as tl


def layer(trace: Any, label: str) -> dict[str, Any]:
    return next(row for row in trace.tables.layers.to_pylist() if row["layer_label"] == label)


class Grows(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            y = x @ self.weight
            x = torch.cat([x, y])
        return x


def test_passes_of_different_shapes() -> None:
    trace = tl.trace(Grows(), torch.ones(2, 4))
    row = layer(trace, "matmul_1")
    assert (row["num_passes"], row["shape"], row["dtype"], row["device"]) == (3, None, "float32", "cpu")
    assert row["nbytes"] == (2 + 4 + 8) * 4 * 4
    assert row["macs"] == (2 + 4 + 8) * 4 * 4 and row["flops"] == 2 * row["macs"]
    assert row["params"] == ["weight"]
    assert row["parents"] == ["input_1", "cat_1"] and row["children"] == ["cat_1"]
    assert row["duration_ns"] == sum(op.duration_ns for op in trace.layers["matmul_1"].ops)


def test_passes_of_different_types() -> None:
    def casts(x: Tensor) -> Tensor:
        for dtype in (torch.float64, torch.bfloat16):
            x = x.to(dtype)
        return x

    row = layer(tl.trace(casts, torch.ones(2)), "to_1")
    assert (row["shape"], row["dtype"], row["nbytes"]) == ([2], None, 16 + 4)


def test_flops_that_one_pass_lacks_are_not_known() -> None:
    def sorts(xs: list[Tensor]) -> list[Tensor]:
        return [torch.tanh(x) for x in xs]

    trace = tl.trace(sorts, [torch.ones(3), torch.ones(0), torch.ones(2)])
    row = layer(trace, "tanh_1")
    assert [op.flops for op in trace.layers["tanh_1"].ops] == [3, None, 2]
    assert (row["flops"], row["macs"]) == (None, None)
    assert row["flops_reason"] == "Its tensors hold no elements, so nothing was computed."


def test_what_is_no_call_has_no_time() -> None:
    trace = tl.trace(Grows(), torch.ones(2, 4))
    assert layer(trace, "input_1")["duration_ns"] is None and layer(trace, "output_1")["flops"] == 0
