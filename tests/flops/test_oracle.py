"""Torch's own counter gives the same where it gives anything; compositions that load the compiler."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils import flop_counter

from tests.flops.product_cases import ATTENTION, CONVOLUTIONS, MATRIX_PRODUCTS, MHA_MACS, RECURRENT
from tests.flops.recording import Cases, f32, last_call, run_python
from torchlens.flops import count

COMPOSITIONS: Cases = {
    # beyond 25 rows torch takes one product with two more coordinates
    "cdist_by_product": (lambda: torch._VF.cdist(f32(30, 4), f32(40, 4), 2.0, None), 2 * 30 * 40 * (4 + 2)),
    # a python function that was not entered: its products alone
    "attention_function": (lambda: attention_function(f32(2, 10, 8)), 2 * MHA_MACS),
    # differences, a small number added to them, their norm
    "pairwise_distance": (lambda: torch.pairwise_distance(f32(2, 3), f32(2, 3), eps=0), 6 + 6 + 6),
    # the sum of each row, less half of its first and last element, times the step
    "trapezoid": (lambda: torch.trapezoid(f32(2, 3)), 6 + (2 + 2) + 2 + 2),
}


def attention_function(x: Tensor) -> object:
    module = nn.MultiheadAttention(8, 2)
    x = x.transpose(0, 1)
    projections = (module.in_proj_weight, module.in_proj_bias, None, None, False, 0.0)
    out = (module.out_proj.weight, module.out_proj.bias)
    return F.multi_head_attention_forward(x, x, x, 8, 2, *projections, *out)


ORACLE = MATRIX_PRODUCTS | CONVOLUTIONS | ATTENTION | RECURRENT
TORCH_GIVES_ZERO = {
    *("matmul_vector", "vector_vector", "dot", "vdot", "vecdot", "mv", "addmv", "addr", "addbmm"),
    *("bilinear", "time_major", "linear_to_scalar", "addmm_in_place", "baddbmm_in_place"),
}
NOT_ON_META = {"lstm_packed", "gru_packed"}


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    """What `measure` prints, in a process of its own: torch's counter loads the compiler."""
    return json.loads(run_python(__file__))


def measure() -> None:
    totals = {}
    for name, (run, _) in ORACLE.items():
        if name not in NOT_ON_META:
            with torch.device("meta"), flop_counter.FlopCounterMode(display=False) as counter:
                run()
            totals[name] = counter.get_total_flops()
    flops = {name: count(*last_call(run)).flops for name, (run, _) in COMPOSITIONS.items()}
    print(json.dumps({"torch": totals, "compositions": flops}))


@pytest.mark.parametrize("name", sorted(ORACLE.keys() - TORCH_GIVES_ZERO - NOT_ON_META))
def test_torchs_counter_gives_the_same_on_meta_tensors(name: str, measured: dict[str, Any]) -> None:
    assert measured["torch"][name] == 2 * ORACLE[name][1]


@pytest.mark.parametrize("name", sorted(TORCH_GIVES_ZERO))
def test_torchs_counter_gives_nothing_for_these(name: str, measured: dict[str, Any]) -> None:
    assert measured["torch"][name] == 0


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_compositions_cost_what_they_are_made_of(name: str, measured: dict[str, Any]) -> None:
    assert measured["compositions"][name] == COMPOSITIONS[name][1]


if __name__ == "__main__":
    measure()
