"""Transforms are one op each, also beside a profiler and around modules."""

from __future__ import annotations

import cProfile
import sys
from typing import Any

import pytest
import torch
from torch import nn

import torchlens as tl


def types(trace: Any) -> list[str]:
    return [op.type for op in trace.ops]


def test_a_transform_that_begins_with_a_module_call() -> None:
    linear = nn.Linear(3, 3)
    x = torch.randn(2, 3)
    trace = tl.trace(lambda x: torch.func.vmap(lambda row: linear(row))(x).relu(), x)
    assert types(trace) == ["input", "vmap", "relu", "output"]
    assert torch.equal(trace.output, linear(x).relu()) or torch.allclose(trace.output, linear(x).relu())
    assert len(trace.module_calls) == 0


def test_a_profiler_written_in_python_goes_on() -> None:
    seen: list[str] = []

    def profiler(frame: Any, event: str, arg: Any) -> None:
        seen.append(event)

    sys.setprofile(profiler)
    try:
        trace = tl.trace(lambda x: torch.func.vmap(lambda row: row * 2)(x), torch.ones(2, 3))
        assert sys.getprofile() is profiler
    finally:
        sys.setprofile(None)
    assert types(trace) == ["input", "vmap", "output"]
    assert "return" in seen


def test_a_profiler_written_in_c_stays_and_the_trace_says_what_it_missed() -> None:
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        trace = tl.trace(lambda x: torch.func.vmap(lambda row: row * 2)(x) + 1, torch.ones(2, 3))
    finally:
        profiler.disable()
    assert torch.equal(trace.output, torch.full((2, 3), 3.0))
    assert "add" in types(trace)
    assert not trace.provenance.verified
    assert trace.provenance.verification_reason == "transform_not_followed"


@pytest.mark.parametrize("transform", ["grad", "vmap", "jacrev", "jacfwd"])
def test_a_transform_that_raises_is_no_op_and_recording_goes_on(transform: str) -> None:
    def fail(x: torch.Tensor) -> torch.Tensor:
        raise ValueError(str((x * 2).shape))

    def run(x: torch.Tensor) -> torch.Tensor:
        with pytest.raises(ValueError, match=r"torch\.Size"):
            getattr(torch.func, transform)(fail)(x)
        return x + 1

    assert types(tl.trace(run, torch.ones(3))) == ["input", "add", "output"]
