"""Transforms are one op each, also beside a profiler and around modules."""

from __future__ import annotations

import cProfile
import sys
from collections.abc import Iterator
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
    assert types(trace) == ["input", "source", "source", "vmap", "relu", "output"]
    assert torch.equal(trace.output, torch.func.vmap(lambda row: linear(row))(x).relu())
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


@pytest.fixture
def profiler_in_c() -> Iterator[cProfile.Profile]:
    profiler = cProfile.Profile()
    profiler.enable()
    yield profiler
    profiler.disable()


def doubled_and_one(x: torch.Tensor) -> torch.Tensor:
    return torch.func.vmap(lambda row: row * 2)(x) + 1


def test_a_profiler_written_in_c_goes_on(profiler_in_c: cProfile.Profile) -> None:
    trace = tl.trace(doubled_and_one, torch.ones(2, 3))
    assert sys.gettrace() is None
    assert torch.equal(trace.output, torch.full((2, 3), 3.0))
    assert types(trace) == ["input", "vmap", "add", "output"]
    assert trace.provenance.verified
    profiler_in_c.disable()
    assert "doubled_and_one" in str([entry.code for entry in profiler_in_c.getstats()])


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="cProfile does not take the profiling hook")
def test_beside_a_profiler_in_c_and_a_debugger_the_trace_says_what_it_missed(
    profiler_in_c: cProfile.Profile,
) -> None:
    def debugger(frame: Any, event: str, arg: Any) -> None: ...

    sys.settrace(debugger)
    try:
        trace = tl.trace(doubled_and_one, torch.ones(2, 3))
        assert sys.gettrace() is debugger
    finally:
        sys.settrace(None)
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
