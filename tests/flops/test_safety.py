"""Counting alters nothing, keeps nothing and is seen by nobody."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import flop_counter

from tests.flops.element_cases import ELEMENTWISE, REDUCTIONS
from tests.flops.product_cases import ATTENTION, CONVOLUTIONS, MATRIX_PRODUCTS
from tests.flops.recording import Kernels, Recorder, counted, f32, last_call, run_python
from torchlens.flops import count
from torchlens.flops.meta_run import run_cost


def test_large_tensors_are_not_copied_or_allocated() -> None:
    huge = torch.zeros(1).expand(1 << 20, 1 << 20)  # 4 TiB if it were real
    assert count(torch.mm, (huge, huge), {}, huge).macs == 1 << 60
    assert count(torch.relu, (huge,), {}, huge).flops == 1 << 40


@counted(MATRIX_PRODUCTS | CONVOLUTIONS | ATTENTION | ELEMENTWISE | REDUCTIONS)
def test_nothing_is_altered(run: Callable[[], object], number: int) -> None:
    call = last_call(run)
    tensors = [t for t in (*call.args, *call.kwargs.values(), call.out) if isinstance(t, Tensor)]
    before = [(t._version, t.shape, t.stride(), t.device, t.requires_grad) for t in tensors]
    state = torch.get_rng_state()
    count(*call)
    assert [(t._version, t.shape, t.stride(), t.device, t.requires_grad) for t in tensors] == before
    assert torch.equal(torch.get_rng_state(), state)


def test_function_that_would_draw_random_numbers_is_stopped() -> None:
    state = torch.get_rng_state()
    cost = run_cost("noisy", lambda x: torch.rand(3), (f32(3),), {})
    assert cost.reason == "It draws random numbers with `rand` on its way."
    assert torch.equal(torch.get_rng_state(), state)


def test_modes_of_the_caller_see_nothing() -> None:
    x, w = f32(1, 4, 8, 9), f32(6, 4, 3, 3)
    with Recorder() as functions, Kernels() as kernels:
        assert count(torch.conv2d, (x, w), {}, None).macs == (6 * 6 * 7) * 4 * 9
        assert count(torch.relu, (x,), {}, x).flops == 4 * 8 * 9
    assert functions.calls == []
    assert kernels.calls == []


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_gradient_modes_make_no_difference(mode: Callable[[], Any]) -> None:
    with mode():
        x, w = f32(2, 3, 10), nn.Parameter(f32(5, 10))
        assert count(torch._VF.einsum, ("btc,dc->btd", [x, w]), {}, None).macs == 2 * 3 * 5 * 10
        assert count(torch.matmul, (x, w.mT), {}, x @ w.mT).macs == 2 * 3 * 5 * 10
        assert torch.is_grad_enabled() == (mode is torch.enable_grad)


def test_equal_shapes_are_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    formula = flop_counter.flop_registry[torch.ops.aten.bmm]

    def spy(*args: Any, **kwargs: Any) -> Any:
        runs.append(args[0].shape)
        return formula(*args, **kwargs)

    monkeypatch.setitem(flop_counter.flop_registry, torch.ops.aten.bmm, spy)
    for _ in range(3):
        assert count(torch.bmm, (f32(13, 2, 3), f32(13, 3, 5)), {}, None).macs == 13 * 2 * 3 * 5
    assert count(torch.bmm, (f32(13, 2, 4), f32(13, 4, 5)), {}, None).macs == 13 * 2 * 4 * 5
    assert runs == [(13, 2, 3), (13, 2, 4)]


def test_nothing_is_kept_alive() -> None:
    x = f32(2, 3, 17)

    def func(x: Tensor) -> Tensor:
        return x

    kept = weakref.ref(x), weakref.ref(func)
    count(torch.bmm, (x, x.mT), {}, None)
    count(func, (x,), {}, x)
    count(torch.relu, (x,), {}, x)
    del x, func
    gc.collect()
    assert [ref() for ref in kept] == [None, None]


def test_models_on_other_threads_run_none_of_our_hooks() -> None:
    before = {**nn.modules.module._global_forward_hooks}, {**nn.modules.module._global_forward_pre_hooks}
    seen: list[bool] = []
    original = flop_counter.flop_registry[torch.ops.aten.bmm]

    def look(*args: Any, **kwargs: Any) -> Any:
        thread = threading.Thread(
            target=lambda: seen.append(
                before
                == (
                    {**nn.modules.module._global_forward_hooks},
                    {**nn.modules.module._global_forward_pre_hooks},
                )
            )
        )
        thread.start()
        thread.join()
        return original(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(flop_counter.flop_registry, torch.ops.aten.bmm, look)
        assert count(torch.bmm, (f32(19, 2, 3), f32(19, 3, 5)), {}, None).macs == 19 * 2 * 3 * 5
    assert seen == [True]


def test_counting_a_usual_model_does_not_load_the_compiler() -> None:
    script = """
import sys, torch, torch.nn.functional as F
from torchlens.flops import count
z = torch.zeros
calls = [
    (F.linear, (z(2, 3), z(5, 3), z(5)), 30), (torch.addmm, (z(5), z(2, 3), z(3, 5)), 30),
    (torch.matmul, (z(2, 3), z(3)), 6), (torch.bmm, (z(7, 2, 3), z(7, 3, 5)), 210),
    (torch.conv2d, (z(1, 4, 8, 8), z(6, 4, 3, 3), z(6)), 7776),
    (torch._VF.einsum, ("ij,jk->ik", [z(2, 3), z(3, 5)]), 30),
]
for func, args, macs in calls:
    assert count(func, args, {}, func(*args)).macs == macs, func
q = z(1, 2, 3, 4)
assert count(F.scaled_dot_product_attention, (q, q, q), {}, q).macs == 2 * 3 * 3 * 4 * 2
assert "torch._dynamo" not in sys.modules
"""
    assert run_python("-c", script) == ""
