"""The writing thread: what it holds, how it ends, and who else may write."""

from __future__ import annotations

import errno
import gc
import linecache
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from weakref import ref

import pytest
import torch
from torch import Tensor

from tests.files.bits import check_numbers, number_of
from tests.files.ends import KEYS, SIZES, in_fork
from torchlens._files import buffers
from torchlens._files.buffers import Buffers
from torchlens._files.shard import Shard
from torchlens._files.values import StoredValues
from torchlens._files.writer import ValueWriter


class Gate:
    """Lets no `fsync` through until it is opened, so that the thread stands still in the first shard."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        self.waiting = threading.Event()
        """Set once somebody waits for memory."""

    def fsync(self, descriptor: int) -> None:
        if threading.current_thread().name == "torchlens values":
            self.reached.set()
            assert self.opened.wait(60)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate()

    class Noting(threading.Condition().__class__):
        def wait(self, timeout: float | None = None) -> bool:
            gate.waiting.set()
            return super().wait(timeout)

    monkeypatch.setattr(os, "fsync", gate.fsync)
    monkeypatch.setattr(buffers, "Condition", Noting)
    yield gate
    gate.opened.set()


def put_all(writer: ValueWriter, keys: list[str], done: list[str]) -> None:
    for key in keys:
        writer.put(key, number_of(key), {"label": f"op:{key}"})
        done.append(key)


def live_buffers(monkeypatch: pytest.MonkeyPatch) -> list[ref[Tensor]]:
    """Weak references to each buffer that snapshots are copied to."""
    found: list[ref[Tensor]] = []
    make = Shard.__init__

    def noting(self: Shard, buffer: Tensor, first: int) -> None:
        if not any(known() is buffer for known in found):
            found.append(ref(buffer))
        make(self, buffer, first)

    monkeypatch.setattr(Shard, "__init__", noting)
    return found


def bytes_held(found: list[ref[Tensor]]) -> int:
    return sum(buffer.nbytes for one in found if (buffer := one()) is not None)


def test_memory_is_bounded_and_the_model_waits(
    gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, done = live_buffers(monkeypatch), []
    keys = [f"{at}" for at in range(100)]
    writer = ValueWriter(tmp_path / "values", shard_bytes=4000, queue_bytes=12_000)  # 10 values a shard
    model = threading.Thread(target=put_all, args=(writer, keys, done))
    model.start()
    assert gate.reached.wait(60)
    assert gate.waiting.wait(60)
    assert bytes_held(held) == 16_000
    assert done == keys[:40]
    gate.opened.set()
    model.join()
    assert bytes_held(held) <= 16_000
    writer.close()
    assert bytes_held(held) == 0
    check_numbers(tmp_path / "values", set(keys), "complete")


def test_a_value_larger_than_the_queue_passes_alone(
    gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, done = live_buffers(monkeypatch), []
    writer = ValueWriter(tmp_path / "values", shard_bytes=1000, queue_bytes=2000)
    put_all(writer, KEYS[:2], done)
    model = threading.Thread(target=writer.put, args=("huge", torch.arange(10_000.0), {}))
    model.start()
    assert gate.waiting.wait(60)
    assert bytes_held(held) == 1000
    gate.opened.set()
    model.join()
    put_all(writer, KEYS[2:], done)
    writer.close()
    stored = StoredValues(tmp_path / "values")
    assert stored["huge"].tolist() == list(range(10_000))
    assert set(stored) == {*KEYS, "huge"}


def test_small_values_are_bounded_in_number(tmp_path: Path) -> None:
    """Each has a place in the header of its shard."""
    writer = ValueWriter(tmp_path / "values", shard_bytes=2**17, queue_bytes=2**18)
    for at in range(300):
        writer.put(str(at), torch.tensor(at), {})
    writer.close()
    assert len(list((tmp_path / "values").glob("*.safetensors"))) == 3
    stored = StoredValues(tmp_path / "values")
    assert [stored[str(at)].item() for at in range(300)] == list(range(300))


def test_buffers_lend_no_more_than_the_limit() -> None:
    lent = Buffers(10, 35)
    first, second, third = (lent.take(1) for _ in range(3))
    lent.give_back(second)
    assert lent.take(10) is second  # memory that was used before
    lent.give_back(third)
    lent.give_back(first)
    large = lent.take(25)
    assert large.nbytes == 25
    lent.give_back(large)
    lent.give_back(second)
    assert lent.take(100).nbytes == 100
    lent.shut()
    assert lent.take(1) is None


def test_a_put_tensor_is_not_held(tmp_path: Path) -> None:
    writer = ValueWriter(tmp_path / "values")
    gc.disable()
    try:
        tensor = torch.rand(10)
        known = ref(tensor)
        writer.put("it", tensor, {})
        del tensor
        assert known() is None
    finally:
        gc.enable()
        writer.close()


def test_nothing_is_left_after_closing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held, before = live_buffers(monkeypatch), threading.active_count()
    gc.collect()
    gc.disable()
    try:
        writer = ValueWriter(tmp_path / "values", **SIZES)
        put_all(writer, KEYS, [])
        stream = ref(writer._stream)
        writer.close()
        writer.close()
        del writer
        assert stream() is None
        assert bytes_held(held) == 0
    finally:
        gc.enable()
    assert threading.active_count() == before
    check_numbers(tmp_path / "values", set(KEYS), "complete")


def test_a_dropped_writer_ends_its_thread(tmp_path: Path) -> None:
    writer = ValueWriter(tmp_path / "values", **SIZES)
    put_all(writer, KEYS, [])
    thread = writer._stream._thread
    del writer
    thread.join(60)
    assert not thread.is_alive()
    check_numbers(tmp_path / "values", set(KEYS), "unfinished")


def test_closing_from_two_threads(gate: Gate, tmp_path: Path) -> None:
    writer = ValueWriter(tmp_path / "values", **SIZES)
    put_all(writer, KEYS[:2], [])
    closing = [threading.Thread(target=writer.close) for _ in range(2)]
    for thread in closing:
        thread.start()
    gate.opened.set()
    for thread in closing:
        thread.join(60)
    check_numbers(tmp_path / "values", set(KEYS[:2]), "complete")


def test_two_writers_at_once(tmp_path: Path) -> None:
    keys = [f"{at}" for at in range(50)]

    def forward(name: str) -> None:
        writer = ValueWriter(tmp_path / name, **SIZES)
        put_all(writer, keys, [])
        writer.close()

    threads = [threading.Thread(target=forward, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in ("a", "b"):
        check_numbers(tmp_path / name, set(keys), "complete")


def test_a_failure_lets_nobody_wait(gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    writer = ValueWriter(tmp_path / "values", **SIZES)
    model = threading.Thread(target=put_all, args=(writer, KEYS, done))
    model.start()
    assert gate.waiting.wait(60)
    monkeypatch.setattr(os, "replace", no_room)
    gate.opened.set()
    model.join(60)
    assert done == KEYS
    writer.close()
    assert set(writer.missing()) == set(KEYS)
    assert set(writer.missing().values()) == {
        "a shard could not be written: No space left on device (ENOSPC)"
    }


def no_room(*args: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_mistake_of_ours_is_shown_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: shown.append(str(args.exc_value)))
    writer = ValueWriter(tmp_path / "values", **SIZES)
    put_all(writer, KEYS[:2], [])
    with monkeypatch.context() as patch:
        patch.setattr(Shard, "header", lambda self: {}["no such thing"])
        put_all(writer, KEYS[2:], [])
        writer.close()
    assert shown == ["'no such thing'"]
    assert writer.failure == "KeyError: 'no such thing'"
    stored = check_numbers(tmp_path / "values", set(KEYS), "unfinished")
    assert set(stored.missing.values()) == {"KeyError: 'no such thing'"}
    assert stored.missing == writer.missing()


def test_a_fork_writes_nothing(tmp_path: Path) -> None:
    writer = ValueWriter(tmp_path / "values", **SIZES)
    put_all(writer, KEYS[:3], [])

    def body(log: int) -> None:
        writer.put("child", torch.ones(3), {})
        writer.close()
        os.write(log, writer.missing()["child"].encode())

    with writer._stream.lock:  # as if another thread were putting a value
        assert in_fork(body) == (0, "it was put in a fork of the process that writes")
    put_all(writer, KEYS[3:], [])
    writer.close()
    check_numbers(tmp_path / "values", set(KEYS), "complete")
    stored = StoredValues(tmp_path / "values")
    mapped = stored[KEYS[0]]

    def read(log: int) -> None:
        same = torch.equal(mapped, number_of(KEYS[0])) and torch.equal(stored[KEYS[1]], number_of(KEYS[1]))
        os.write(log, str(same).encode())

    assert in_fork(read) == (0, "True")


class Interrupting:
    """A tracer that raises at the n-th line of the package that the thread comes to."""

    def __init__(self, at: int) -> None:
        self.at, self.count = at, 0

    def __call__(self, frame: FrameType, event: str, arg: object) -> Interrupting | None:
        if "_files" not in frame.f_code.co_filename or frame.f_code.co_name in ("unseen", "__exit__"):
            return None
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip()
        # leaving a `with` is an event of its line, and `try:` has one: no place where a signal is looked at
        if event == "line" and not line.startswith(("with ", "try:")):
            self.count += 1
            if self.count == self.at:
                raise KeyboardInterrupt("now")
        return self


@pytest.mark.parametrize("call", ["put", "close"])
def test_an_interrupt_loses_nothing_that_was_put(call: str, tmp_path: Path) -> None:
    """Ctrl-C at any line of a put that begins a shard, or of closing."""
    at, interrupted, before = 0, True, sys.gettrace()
    while interrupted:
        at += 1
        path, tracer = tmp_path / str(at), Interrupting(at)
        writer = ValueWriter(path, **SIZES)
        put_all(writer, KEYS[:2], [])
        try:
            sys.settrace(tracer)
            put_all(writer, ["third"], []) if call == "put" else writer.close()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        interrupted = tracer.count >= at
        if call == "put":
            put_all(writer, KEYS[2:], [])
        writer.close()
        expected = {*KEYS[:2], *(KEYS[2:] if call == "put" else [])}
        stored = check_numbers(path, expected | set(stored_keys(path)), "complete")
        assert expected <= set(stored)
    assert at > (50 if call == "put" else 5)


def stored_keys(path: Path) -> list[str]:
    stored = StoredValues(path)
    return [*stored, *stored.missing]
