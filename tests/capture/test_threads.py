"""Other threads: what changes the verdict on a trace, what does not, and that nothing of ours stays."""

from __future__ import annotations

import _thread
import io
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests.programs.reading import floats

TRIPWIRE = "owner_thread_tripwire_changed"


def verdict(work: Callable[[], object]) -> tuple[str, ...]:
    """The reasons of a trace during which `work` ran on the capturing thread."""

    def model(x: Tensor) -> Tensor:
        x = x * 2
        work()
        return x + 1

    trace = tl.trace(model, floats(3))
    return tuple(doubt.name for doubt in trace.provenance.reasons)


def run_thread(work: Callable[[], object] = int, **options: Any) -> threading.Thread:
    thread = threading.Thread(target=work, **options)
    thread.start()
    thread.join()
    return thread


@contextmanager
def busy(step: Callable[[], object]) -> Iterator[None]:
    """A thread that was there before and does `step` again and again."""
    over, begun = threading.Event(), threading.Event()

    def work() -> None:
        while not over.is_set():
            step()
            begun.set()

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_thread_that_came_and_went() -> None:
    assert verdict(run_thread) == (TRIPWIRE,)


def test_a_thread_that_stays() -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    assert verdict(thread.start) == (TRIPWIRE,)
    over.set()
    thread.join()


def test_a_thread_that_was_there_and_is_waited_for() -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()

    def finish() -> None:
        over.set()
        thread.join()

    assert verdict(finish) == (TRIPWIRE,)


def test_a_thread_that_is_begun_without_the_library_for_threads() -> None:
    over, begun = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        over.wait()

    def start() -> None:
        _thread.start_new_thread(work, ())
        begun.wait()

    assert verdict(start) == (TRIPWIRE,)
    over.set()


def test_as_many_threads_as_were_started_are_counted() -> None:
    trace = tl.trace(lambda x: [run_thread() for _ in range(5)] and x * 2, floats(3))
    assert [(doubt.name, doubt.count) for doubt in trace.provenance.reasons] == [(TRIPWIRE, 5)]


def test_a_pool_that_was_there_before_is_no_reason() -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        assert verdict(lambda: pool.submit(int).result()) == ()


def test_a_pool_that_needs_a_new_thread_is_one() -> None:
    with ThreadPoolExecutor(1) as pool:
        assert verdict(lambda: pool.submit(int).result()) == (TRIPWIRE,)


def test_threads_that_another_thread_starts_and_ends_are_no_reason() -> None:
    """As in a server that answers each request on a thread of its own."""
    asked, done = threading.Event(), threading.Event()

    def step() -> None:
        if asked.wait(0.01):
            asked.clear()
            run_thread()
            done.set()

    def ask() -> None:
        asked.set()
        assert done.wait(10)

    with busy(step):
        assert verdict(ask) == ()


def test_a_model_that_another_thread_runs_for_itself_is_no_reason() -> None:
    layer, x = nn.Linear(3, 3), floats(3)
    with busy(lambda: layer(x)):
        assert verdict(lambda: time.sleep(0.05)) == ()


def test_a_capture_on_a_new_thread_is_no_reason() -> None:
    found: list[Any] = []
    assert verdict(lambda: run_thread(lambda: found.append(tl.trace(nn.ReLU(), floats(3))))) == ()
    assert found[0].provenance.verified


def test_many_captures_at_once_are_no_reasons() -> None:
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(10)])
    all_begun = threading.Barrier(4)  # one that was just started, by whom can't be told, is a reason

    def work(_: int) -> list[bool]:
        all_begun.wait()
        return [tl.trace(model, floats(2, 4)).provenance.verified for _ in range(5)]

    for _ in range(5):
        with ThreadPoolExecutor(4) as pool:
            assert all(all(verified) for verified in pool.map(work, range(4)))


def test_a_monitor_of_progress_bars_is_no_reason() -> None:
    tqdm = pytest.importorskip("tqdm")
    kept, tqdm.tqdm.monitor = tqdm.tqdm.monitor, None

    def work() -> None:
        for _ in tqdm.tqdm(range(2), disable=False, file=io.StringIO()):
            pass

    try:
        assert verdict(work) == ()
    finally:
        if tqdm.tqdm.monitor is not None:
            tqdm.tqdm.monitor.exit()
        tqdm.tqdm.monitor = kept


def test_what_a_module_gave_on_another_thread_is_named() -> None:
    layer = nn.Linear(3, 3)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        trace = tl.trace(lambda x: pool.submit(layer, x).result()[1:] + 1, floats(3))
    assert trace.provenance.verification_reason == "tensor_from_another_thread"
    assert trace.provenance.reasons[0].ops == ("source_1:1",)


def test_the_program_s_own_profiler_of_threads_stays_and_hears_everything() -> None:
    seen: list[str] = []

    def users(frame: FrameType, event: str, arg: Any) -> None:
        seen.append(frame.f_code.co_name)

    def work_that_is_profiled() -> None:
        pass

    threading.setprofile(users)
    try:
        assert verdict(lambda: run_thread(work_that_is_profiled)) == (TRIPWIRE,)
        assert threading.getprofile() is users
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]
    assert seen[0] == "run" and "work_that_is_profiled" in seen


def test_a_profiler_that_the_program_sets_meanwhile_stays() -> None:
    def users(frame: FrameType, event: str, arg: Any) -> None:
        pass

    try:
        verdict(lambda: threading.setprofile(users))
        assert threading.getprofile() is users
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]


def test_captures_that_end_in_the_order_they_began_leave_nothing() -> None:
    first_is_open, second_is_open = threading.Event(), threading.Event()
    traces: list[Any] = []

    def first(x: Tensor) -> Tensor:
        first_is_open.set()
        assert second_is_open.wait(10)
        return x * 2

    def second(x: Tensor) -> Tensor:
        second_is_open.set()
        thread.join()
        run_thread()
        return x * 3

    thread = threading.Thread(target=lambda: traces.append(tl.trace(first, torch.ones(2))))
    thread.start()
    assert first_is_open.wait(10)
    traces.append(tl.trace(second, torch.ones(2)))
    assert [trace.provenance.verification_reason for trace in traces] == [None, TRIPWIRE]
    assert threading.getprofile() is None


def test_outputs_of_another_thread_are_not_kept_alive() -> None:
    layer, x, freed = nn.Linear(3, 3), floats(3), []

    def call() -> None:
        given = layer(x).untyped_storage()
        freed.append(torch.multiprocessing.reductions.StorageWeakRef(given))

    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()

        def model(x: Tensor) -> Tensor:
            pool.submit(call).result()
            assert freed[0].expired()
            return x * 2

        assert tl.trace(model, x).provenance.verified
