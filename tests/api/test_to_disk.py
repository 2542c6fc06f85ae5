"""`storage=tl.to_disk(path)`: values are those of memory, and a run that ends early leaves what it wrote."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests.programs.examples import EXAMPLES
from tests.programs.last_writers import equal_bits
from tests.programs.saving import assert_same_facts
from torchlens.errors import MissingValueError, OptionError, OverwrittenError, PathTakenError

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", EXAMPLES)
def test_values_come_back_as_they_were(name: str, tmp_path: Path) -> None:
    example = EXAMPLES[name]
    traces = []
    for storage in (None, tl.to_disk(tmp_path / "run")):
        torch.manual_seed(0)
        model = example.build()
        torch.manual_seed(1)
        traces.append(tl.trace(model, example.inputs(), input_kwargs=example.kwargs(), storage=storage))
    full, found = traces
    assert_same_facts(found, full)
    for one, other in zip(found.ops, full.ops, strict=True):
        if other.operation in ("empty", "empty_like"):  # whatever was in that memory
            continue
        try:
            expected = other.out
        except OverwrittenError:
            continue
        value = one.out
        assert equal_bits(value.resolve_conj(), expected.detach().resolve_conj()), one.label
        assert value.dtype == expected.dtype
    stored = tl.load_values(tmp_path / "run")
    assert stored.status == "complete"
    assert not stored.missing


def test_labels_name_the_values(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.BatchNorm1d(3)).train()
    trace = tl.trace(model, torch.ones(2, 3), save=tl.func("tanh"), storage=tl.to_disk(tmp_path / "run"))
    stored = tl.load_values(tmp_path / "run")
    assert list(stored) == ["tanh_1:1"]  # what the model returned stays in memory
    assert stored.about("tanh_1:1") == {"label": "tanh_1:1", "func_name": "tanh", "name": None, "module": "1"}
    assert torch.equal(stored["tanh_1:1"], trace["tanh_1"].out)


def test_values_of_a_block_and_of_a_forward_that_raised(tmp_path: Path) -> None:
    def fails(x: Tensor) -> Tensor:
        raise ValueError(f"after {torch.tanh(x).sum() > 0}")

    with pytest.raises(ValueError, match="after"):
        tl.trace(fails, torch.ones(2), storage=tl.to_disk(tmp_path / "trace"))
    assert "tanh_1:1" in tl.load_values(tmp_path / "trace")
    with (
        pytest.raises(ValueError, match="after"),
        tl.capture(fails, storage=tl.to_disk(tmp_path / "block")) as t,
    ):
        fails(torch.ones(2))
    assert torch.equal(t["tanh_1"].out, torch.tanh(torch.ones(2)))


def test_a_value_written_over_is_the_one_of_its_op(tmp_path: Path) -> None:
    def model(x: Tensor) -> Tensor:
        y = x * 2
        view = y[0]
        y.add_(1)
        view.mul_(3)
        again = y[0]
        y.numpy()[:] = 7
        return again + y.sum()

    full, found = (
        tl.trace(model, torch.ones(2, 3), storage=storage) for storage in (None, tl.to_disk(tmp_path / "run"))
    )
    for one, other in zip(found.ops, full.ops, strict=True):
        try:
            expected = other.out
        except OverwrittenError:
            expected = None
        assert expected is None or torch.equal(one.out, expected), one.label
    assert found["mul_1"].out.eq(2).all()
    assert found["getitem_1:1"].out.eq(2).all()
    assert found["getitem_2:1"].out.eq(9).all()


CHILD = """
    import os, signal, sys
    import torch, torchlens as tl

    class Net(torch.nn.Module):
        def forward(self, x):
            for step in range(40):
                x = torch.tanh(x + step)
                if step == {step}:
                    os.kill(os.getpid(), signal.SIGKILL)
            return x

    tl.trace(Net(), torch.ones(1000), storage=tl.to_disk(sys.argv[1], shard_bytes=16_000, queue_bytes=32_000))
"""


@pytest.mark.parametrize("step", [0, 7, 25])
def test_a_killed_run_leaves_what_was_finished_and_names_the_rest(step: int, tmp_path: Path) -> None:
    path = tmp_path / "run"
    script = textwrap.dedent(CHILD.format(step=step))
    done = subprocess.run([sys.executable, "-c", script, str(path)], cwd=ROOT, check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL
    stored = tl.load_values(path)
    assert stored.status == "unfinished"
    expected, names = torch.ones(1000), ["input_1:1"]
    values = {"input_1:1": expected}
    for n in range(step + 1):
        values[f"add_1:{n + 1}"] = expected + n
        expected = values[f"tanh_1:{n + 1}"] = torch.tanh(expected + n)
        names += [f"add_1:{n + 1}", f"tanh_1:{n + 1}"]
    assert sorted([*stored, *stored.missing]) == sorted(names)
    assert len(stored) >= len(names) - 14  # a shard takes four values, the queue eight
    for label in stored:
        assert torch.equal(stored[label], values[label]), label
    for label in stored.missing:
        with pytest.raises(MissingValueError, match=f"the value of {label} is not on the disk"):
            _ = stored[label]


FULL = """
    import resource, signal, sys
    import torch, torchlens as tl

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    where = tl.to_disk(sys.argv[1], shard_bytes=2**20, queue_bytes=2**21)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
    trace = tl.trace(lambda x: torch.tanh(x * 2).sum(), torch.ones(50_000), storage=where)
    print(trace.status, trace.output.item() > 0)
    print(trace.notes)
    try:
        trace["tanh_1"].out
    except tl.errors.MissingValueError as error:
        print(error)
"""


def test_a_full_disk_ends_the_writing_and_not_the_forward(tmp_path: Path) -> None:
    script = textwrap.dedent(FULL)
    command = [sys.executable, "-c", script, str(tmp_path / "run")]
    done = subprocess.run(command, cwd=ROOT, check=False, timeout=120, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    status, notes, error = done.stdout.splitlines()
    assert status == "complete True"  # what the model returned is never lost
    assert "not written to" in notes
    assert "the value of tanh_1:1 is not on the disk" in error


def test_an_existing_path_is_refused_before_anything_runs(tmp_path: Path) -> None:
    ran = []
    where = tl.to_disk(tmp_path / "run")
    (tmp_path / "run").mkdir()
    with pytest.raises(PathTakenError, match="nothing is overwritten"):
        tl.trace(lambda x: ran.append(x), torch.ones(1), storage=where)
    with pytest.raises(PathTakenError, match="exists already"):
        tl.to_disk(tmp_path / "run")
    assert not ran
    assert list((tmp_path / "run").iterdir()) == []
    assert tl.trace(torch.tanh, torch.ones(1))  # the thread is free


@pytest.mark.parametrize("name", ["backward_ready", "copy"])
def test_options_that_contradict_files_are_refused(name: str, tmp_path: Path) -> None:
    options = tl.options.CaptureOptions(**{name: True})
    with pytest.raises(OptionError, match=f"{name} contradict each other"):
        tl.trace(torch.tanh, torch.ones(1), storage=tl.to_disk(tmp_path / "run"), capture=options)
    with pytest.raises(OptionError, match=r"give tl\.to_disk\(path\)"):
        tl.trace(torch.tanh, torch.ones(1), storage=str(tmp_path / "run"))  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


def test_two_threads_write_two_runs(tmp_path: Path) -> None:
    found: dict[int, Any] = {}

    def work(n: int) -> None:
        where = tl.to_disk(tmp_path / str(n))
        found[n] = tl.trace(nn.Tanh(), torch.full((100,), float(n)), storage=where)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n in range(2):
        assert torch.equal(found[n]["tanh_1"].out, torch.tanh(torch.full((100,), float(n))))
