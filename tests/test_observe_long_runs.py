"""Many traces, and traces at the same time: memory stays flat and threads stay apart."""

from __future__ import annotations

import gc
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests import models
from tests.programs.examples import floats
from tests.programs.reading import lint, passes

# ---- threads -------------------------------------------------------------------------------------


class MeetsOthers(nn.Module):
    """Waits before every step until the other thread is there too."""

    def __init__(self, barrier: threading.Barrier, step: Callable[[Tensor], Tensor], training: bool) -> None:
        super().__init__()
        self.barrier = barrier
        self.step = step
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).train(training)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(20):
            self.barrier.wait(timeout=30)
            x = self.step(self.layers(x))
        return x


def test_two_threads_capture_two_models_at_once() -> None:
    barrier = threading.Barrier(2)
    names = ("sin", "cos")
    traces: dict[str, Any] = {}

    def capture(name: str) -> None:
        model = MeetsOthers(barrier, getattr(torch, name), training=False)
        traces[name] = tl.trace(model, floats(2, 4))

    threads = [threading.Thread(target=capture, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in names:
        lint(traces[name])
        assert passes(traces[name]) == {"linear_1": 20, "dropout_1": 20, f"{name}_1": 20}
        assert traces[name].provenance.verified, traces[name].provenance.verification_reason
        assert traces[name].modules["layers"].num_calls == 20


# ---- memory --------------------------------------------------------------------------------------


def read_everything(trace: Any) -> None:
    _ = trace.graph.nodes, [list(near) for _, near in trace.graph.adjacency()]
    for op in trace.ops:
        _ = op.parents, op.children, op.label, op.call_site, op.args, op.layer.layer_label, op.graph.site_key
    _ = trace.layers[-1].num_passes, trace.modules[""].calls, trace.output, str(trace)


def trace_only(model: nn.Module, x: Tensor) -> None:
    tl.trace(model, x)


def trace_and_read(model: nn.Module, x: Tensor) -> None:
    trace = tl.trace(model, x)
    read_everything(trace)


def fail_in_block(model: nn.Module, x: Tensor) -> None:
    try:
        with tl.capture(model) as trace:
            model(x)
            raise LookupError
    except LookupError:
        read_everything(trace)


def fail_in_model(model: nn.Module, x: Tensor) -> None:
    try:
        tl.trace(lambda x: model(x)[17, 17, 17], x)
    except IndexError:
        pass


ALLOWED_BYTES = 200_000
"""Torch itself keeps some 40 kB under a mode that does nothing; one row a trace would be 200 kB."""

WAYS = (trace_only, trace_and_read, fail_in_block, fail_in_model)


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    gc.collect()


def live_objects() -> tuple[int, int]:
    objects = gc.get_objects()
    return len(objects), sum(issubclass(type(o), Tensor) for o in objects)


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("work", WAYS, ids=lambda work: work.__name__)
def test_two_hundred_traces_leave_memory_flat(work: Callable[..., None]) -> None:
    model = nn.Sequential(
        models.ReusedBlock(), models.Hooked(), models.WritesThroughViews(), models.CountsInPlace()
    )
    x = floats(3, 4)
    for _ in range(5):
        work(model, x)
    gc.collect()  # also empties the interpreter's free lists, which count as allocated
    objects, tensors = live_objects()
    tracemalloc.start()
    try:
        for _ in range(200):
            work(model, x)
        assert live_objects()[1] == tensors
        assert live_objects()[0] - objects < 50, "containers that nobody frees"
        assert gc.collect() == 0, "containers that only the collector frees"
        assert tracemalloc.get_traced_memory()[0] < ALLOWED_BYTES, "bytes that nobody frees"
    finally:
        tracemalloc.stop()


@pytest.mark.usefixtures("no_collector")
def test_a_dropped_trace_frees_its_tensors_at_once() -> None:
    trace = tl.trace(models.WritesThroughViews(), floats(3, 4))
    before = live_objects()[1]
    read_everything(trace)
    del trace
    assert live_objects()[1] < before
