"""What a capture keeps alive, counted in storages while the model runs and afterwards."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import ref

import pytest
import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

import torchlens as tl
from tests.programs.examples import EXAMPLES

ROOT = Path(__file__).parents[2]
WIDTH, DEPTH = 1000, 12
ONE = WIDTH * 4  # bytes of one activation


class PeakBytes(TorchDispatchMode):
    """Adds up, at each operator, the storages that operators made and that are alive."""

    def __init__(self, given: set[int]) -> None:
        super().__init__()
        self.given = given
        self.alive: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in self.given:
                    self.alive[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        living = [size for weak, size in self.alive.values() if not weak.expired()]
        self.peak = max(self.peak, sum(living))
        return out


def peak_of(run: Callable[[], Any]) -> int:
    given = {tensor.untyped_storage()._cdata for tensor in (X, *DEEP.parameters())}
    with PeakBytes(given) as counted, torch.no_grad():
        run()
    return counted.peak


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(DEPTH))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


X = torch.ones(1, WIDTH)
DEEP = Deep()


def test_peak_memory_is_the_plain_forwards_plus_what_is_kept() -> None:
    plain = peak_of(lambda: DEEP(X))
    assert plain <= 3 * ONE
    assert peak_of(lambda: tl.trace(DEEP, X)) == 2 * DEPTH * ONE
    for save, kept in {"": 0, "layers.3": 1, "relu_1:4": 1}.items():
        found = peak_of(lambda save=save: tl.trace(DEEP, X, save=[save] if save else []))
        assert found <= plain + kept * ONE, save
    two = [tl.module("layers.2"), tl.module("layers.7")]
    assert peak_of(lambda: tl.trace(DEEP, X, save=two)) <= plain + 2 * ONE
    assert peak_of(lambda: tl.record(DEEP, X)) <= plain
    assert peak_of(lambda: tl.pluck(DEEP, X, "layers.7")) <= plain


def test_values_on_disk_take_no_memory_of_tensors(tmp_path: Any) -> None:
    plain = peak_of(lambda: DEEP(X))
    trace = tl.trace(DEEP, X, storage=tl.to_disk(tmp_path / "run"))
    assert trace.memory.kept_bytes == ONE  # what the model returned
    assert peak_of(lambda: tl.trace(DEEP, X, storage=tl.to_disk(tmp_path / "other"))) <= plain + ONE


@contextmanager
def collector_off() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


OPTIONS = {
    "all": {},
    "none": {"save": []},
    "some": {"save": tl.func("tanh") | tl.module("")},
    "halted": {"stop_after": tl.where(lambda op: op.kind == "call")},
    "detached": {"capture": tl.options.CaptureOptions(detach_saved_activations=True)},
    "copies": {"capture": tl.options.CaptureOptions(copy=True)},
    "backward_ready": {"capture": tl.options.CaptureOptions(backward_ready=True)},
}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", "Looped WritesThroughViews CountsInPlace TransformInLoop Hooked".split())
def test_del_frees_everything_at_once(name: str, options: str) -> None:
    example = EXAMPLES[name]
    model, inputs = example.build(), example.inputs()
    with collector_off():
        trace = tl.trace(model, inputs, input_kwargs=example.kwargs(), **OPTIONS[options])
        parts = [
            ref(trace),
            ref(trace._reader),
            ref(trace._reader.record.structure),
            ref(trace._reader.ledger),
        ]
        values = [ref(held) for held in kept_tensors(trace)]
        read_all(trace)
        del trace
        held = {id(tensor) for tensor in (*inputs, *model.parameters(), *model.buffers())}
        assert [part() for part in parts] == [None] * 4
        assert [t for value in values if (t := value()) is not None and id(t) not in held] == []


def read_all(trace: Any) -> None:
    """What is read is remembered by the trace, and must go with it."""
    assert trace.layers and trace.graph and str(trace.summary())
    assert [op.parents for op in trace.ops]


def kept_tensors(trace: Any) -> list[Tensor]:
    reader = trace._reader
    found = [
        reader.values.held(reader.tensor(op.call_index, op.output_slot), op.call_index) for op in trace.ops
    ]
    return [tensor for tensor in found if tensor is not None]


def test_cleanup_frees_the_values_of_a_trace_that_is_still_named() -> None:
    with collector_off():
        trace = tl.trace(Deep(), X)
        value = ref(trace["relu_1:3"].out)
        trace.cleanup()
        assert value() is None
    with pytest.raises(tl.errors.NotSavedError, match=r"cleanup\(\) has freed this trace"):
        _ = trace.layers


def test_a_recording_and_a_plucked_value_hold_no_more_than_they_show() -> None:
    with collector_off():
        recording = tl.record(DEEP, X, save="layers.3")
        kept = [ref(tensor) for tensor in kept_tensors(recording.to_trace())]
        assert len([value for value in kept if value() is not None]) == 2  # with the output
        del recording
        assert all(value() is None for value in kept)


def test_two_hundred_traces_need_no_more_than_one() -> None:
    small = nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True))
    with collector_off():
        for save in (None, [], "0"):
            tl.trace(small, torch.ones(1, 8), save=save)
            before = len(gc.get_objects())
            for _ in range(200):
                tl.trace(small, torch.ones(1, 8), save=save)
            assert len(gc.get_objects()) - before < 200, save


def test_no_weak_reference_is_left_on_a_tensor() -> None:
    x = torch.ones(3)
    tl.trace(torch.tanh, x, save=[])
    y = torch.zeros(3)
    torch.utils.swap_tensors(x, y)  # refuses tensors that have weak references
    assert x.sum() == 0


GROWTH = """
    import sys
    import torch, torchlens as tl

    def resident():
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) >> 10 for line in status if line.startswith("RssAnon"))

    def long(x):
        for _ in range(200):
            x = x + 1
        return x

    x = torch.ones(2**20)
    long(x)
    tl.trace(long, torch.ones(1), save=[])
    before = resident()
    where = tl.to_disk(sys.argv[1], shard_bytes=2**24, queue_bytes=2**25) if len(sys.argv) > 1 else None
    tl.trace(long, x, save=None if where else [], storage=where)
    print(resident() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("on_disk", [False, True], ids=["nothing kept", "on disk"])
def test_the_process_does_not_grow_by_what_is_not_kept(on_disk: bool, tmp_path: Path) -> None:
    """The heap can't join what small objects part: 200 values of 4 MiB once took 800 MiB of it."""
    command = [sys.executable, "-c", textwrap.dedent(GROWTH), *([str(tmp_path / "run")] if on_disk else [])]
    done = subprocess.run(command, cwd=ROOT, check=True, timeout=120, capture_output=True, text=True)
    assert int(done.stdout) < 150
