"""The benchmarks run, and their figures are about what they say."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import torchlens as tl

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"
OPS = 50
MILLION = 20_000
OF_ONE = 16 * 4
"""Bytes of one tiny tensor."""


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True, text=True, check=False, timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(BENCHMARKS)]), "COLUMNS": "200"},
    )  # fmt: skip


def output_of(*arguments: str) -> str:
    result = python(*arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


def overhead(*arguments: str) -> str:
    fixed = f"--tiny-ops {OPS} --million-ops {MILLION} --repeats 1 --threads 1".split()
    return output_of(str(BENCHMARKS / "overhead.py"), *fixed, *arguments)


def interpreter(path: Path, body: str) -> str:
    """Stands in for a Python in which a peer is installed."""
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


@pytest.fixture(scope="module")
def printed() -> dict:
    return json.loads(overhead("--case", "tiny", "--case", "million", "--json"))


@pytest.fixture(scope="module")
def figures(printed: dict) -> dict:
    return printed["tiny"]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Tables, with a release that is slow and an nnsight that lacks a package."""
    directory = tmp_path_factory.mktemp("peers")
    sample = {"milliseconds": [2.0], "page_faults": [0]}
    rows = {"plain forward": sample, "trace": {**sample, "milliseconds": [50000.0]}}
    release = {"package": "torchlens", "version": "2.36.1", "rows": rows}
    why = "not available: No module named 'transformers'"
    nnsight = {"package": "nnsight", "version": "0.8.1", "rows": {"plain forward": why}}
    first = interpreter(directory / "release", f"echo '{json.dumps(release)}'")
    second = interpreter(directory / "nnsight", f"cat <<END\n{json.dumps(nnsight)}\nEND")
    cases = "--case tiny --case training-step".split()
    return overhead(*cases, "--peer-python", first, "--nnsight-python", second)


def test_counts_calls_and_ops(figures: dict) -> None:
    assert figures["calls"] == OPS
    assert figures["ops"] == OPS + 2  # the input and the output


MEASURED = (
    "plain forward",
    "plain forward, cut at 1/4",
    "null mode, nothing kept",
    "null mode, outputs kept",
    "hooks on every module",
    "torch.fx.Interpreter",
    "torch.profiler",
    "trace",
    "trace with witness",
)


@pytest.mark.parametrize("row", MEASURED)
def test_a_row_that_exists_is_measured_once_for_each_turn(figures: dict, row: str) -> None:
    samples = figures["rows"][row]
    assert len(samples["milliseconds"]) == len(samples["page_faults"]) == 1
    assert samples["milliseconds"][0] > 0


@pytest.mark.parametrize(
    ("row", "function", "parameter"),
    [
        ("trace, one module kept", "trace", "save"),
        ("trace, nothing kept", "trace", "save"),
        ("trace, all to disk", "trace", "storage"),
        ("record, nothing kept", "record", "save"),
        ("record, one module kept", "record", "save"),
        ("record, nothing kept, to 1/4", "record", "stop_after"),
        ("record, read as trace, to 1/4", "record", "stop_after"),
        ("pluck at 1/4", "pluck", "site"),
    ],
)
def test_a_row_is_measured_as_soon_as_its_capture_exists(
    figures: dict, row: str, function: str, parameter: str
) -> None:
    built = function in tl.__all__ and parameter in inspect.signature(getattr(tl, function)).parameters
    assert built is (figures["rows"][row] != "not available")


def test_a_row_that_stops_early_has_no_time_for_each_call(figures: dict) -> None:
    assert figures["microseconds_per_call"]["plain forward, cut at 1/4"] is None
    assert figures["microseconds_per_call"]["plain forward"] == 0
    assert figures["ratios"]["plain forward, cut at 1/4"]["plain forward"] > 0


def test_counts_the_bytes_of_what_is_kept(figures: dict) -> None:
    assert figures["memory"]["storage_bytes"] == OPS * OF_ONE
    assert figures["memory"]["kept_bytes"] == OPS * OF_ONE
    assert figures["memory"]["value_bytes"] == (OPS + 2) * OF_ONE


def test_counts_the_bytes_at_the_peak(figures: dict) -> None:
    peaks = figures["peaks"]
    assert peaks["middle_bytes"] == OF_ONE
    for found in (peaks["with_gradients"], peaks["without_gradients"]):
        assert 2 * OF_ONE <= found["plain forward"] < 5 * OF_ONE  # what goes in and out, and scalars
        assert OPS * OF_ONE <= found["trace"]


def test_a_peak_counts_what_is_alive_at_once_whatever_ran_before() -> None:
    code = """
import torch
from peak import peak_bytes

def chain():
    x = torch.ones(1000)
    for _ in range(5):
        x = torch.tanh(x)
    return x

def all_at_once():
    return [torch.ones(1000) for _ in range(5)]

print([peak_bytes(work) for work in (chain, all_at_once, chain, lambda: None)])
"""
    assert json.loads(output_of("-c", code)) == [8000, 20000, 8000, 0]


def test_table_fits_100_columns(shown: str) -> None:
    assert "50 tiny operations: 50 torch calls, 52 ops" in shown
    assert max(map(len, shown.splitlines())) <= 100


def test_table_has_every_row(shown: str, figures: dict) -> None:
    for row in figures["rows"]:
        assert re.search(
            rf"^│ {re.escape(row)} +│ +[\d.,]+ │|^│ {re.escape(row)} +│ not available", shown, re.M
        )


def test_table_has_the_peers(shown: str) -> None:
    assert re.search(r"^│ torchlens 2\.36\.1: plain forward +│ +2\.00 │ +1\.00 │ +│ +0\.00 │", shown, re.M)
    assert re.search(r"^│   trace +│ +50,000\.00 │ +25,000\.00 │ +│ +999,960\.00 │", shown, re.M)
    assert re.search(r"^torchlens 2\.36\.1 takes [\d.,]+ times as long for its trace$", shown, re.M)
    assert re.search(r"^│ nnsight 0\.8\.1: plain forward +│ not available │", shown, re.M)
    assert "nnsight 0.8.1: plain forward not available: No module named 'transformers'" in shown


def test_a_peer_that_fails_is_no_row(tmp_path: Path) -> None:
    broken = interpreter(tmp_path / "python", "echo it went wrong >&2; exit 3")
    arguments = f"--case tiny --tiny-ops {OPS} --repeats 1 --peer-python {broken}".split()
    result = python(str(BENCHMARKS / "overhead.py"), *arguments)
    assert result.returncode == 2
    assert "could not run peer_torchlens.py" in result.stderr
    assert "it went wrong" in result.stderr


def test_a_peer_script_prints_its_rows() -> None:
    code = """
from peer import run_peer
run_peer("torch", lambda case: {"twice": lambda: (case.forward(), case.forward()), "other": "not available"})
"""
    found = json.loads(output_of("-c", code, *"--case tiny --repeats 2 --threads 1 --tiny-ops 20".split()))
    assert found["package"] == "torch"
    assert list(found["rows"]) == ["plain forward", "twice", "other"]
    assert len(found["rows"]["twice"]["milliseconds"]) == 2
    assert found["rows"]["other"] == "not available"


def test_what_cannot_be_measured_says_why() -> None:
    code = """
import torch
from torch import nn
from cases import Case
from references import forward_until, interpreted

class Branch(nn.Module):
    def __init__(self):
        super().__init__()
        self.unused = nn.Tanh()

    def forward(self, x):
        return x if x.sum() > 0 else -x

case = Case("", Branch(), torch.ones(3), "unused", "unused")
print(interpreted(case))
try:
    forward_until(case, "unused")
except RuntimeError as error:
    print(error)
"""
    traced, cut = output_of("-c", code).splitlines()
    assert traced.startswith("cannot trace: TraceError: symbolically traced variables cannot be used as")
    assert cut == "the forward never reached 'unused'"


def test_training_steps_learn_the_same() -> None:
    code = """
import torch
from torch import nn
from training import Training, block_step, plain_step, traced_step

def trained(step):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    training = Training("", model, torch.ones(3, 4), lambda output: output.square().mean(), ("0", "1"))
    training.optimizer.param_groups[0]["lr"] = 1.0
    step(training)
    return [parameter.tolist() for parameter in model.parameters()]

plain = trained(plain_step)
print(plain == trained(traced_step), plain == trained(block_step))
print(plain == trained(lambda training: training.finish(training.model(training.inputs), [torch.zeros(1)])))
"""
    assert output_of("-c", code).splitlines() == ["True True", "False"]


def test_table_of_training_steps(shown: str) -> None:
    assert "training step, ResNet-18, 8x3x64x64" in shown
    assert re.search(r"^│ plain step, two hooks +│ +[\d.,]+ │ +1\.00 │", shown, re.M)
    assert re.search(r"^│ step under trace, all kept +│ +[\d.,]+ │ +\d+\.\d\d │", shown, re.M)
    assert "kept for the loss: layer2 and layer3" in shown


def test_a_long_run_is_measured_at_three_sizes(printed: dict) -> None:
    found = printed["million"]
    assert found["sizes"] == [MILLION // 10, MILLION * 3 // 10, MILLION]
    runs = found["rows"]["trace"]
    assert [run["ops"] for run in runs] == found["sizes"]
    for size in ("record_bytes", "read_bytes", "peak_bytes"):
        assert runs[-1][size] > MILLION * OF_ONE  # every value is kept
    assert found["growth"]["trace"] == runs[-1]["microseconds"] / runs[0]["microseconds"]


def test_a_long_run_that_keeps_nothing_is_measured_once_it_exists(printed: dict) -> None:
    built = "save" in inspect.signature(tl.trace).parameters
    assert built is (printed["million"]["rows"]["trace, nothing kept"] != "not available")


def test_what_tables_take_is_measured_part_by_part() -> None:
    arguments = "--case tiny --ops 40 --repeats 1 --json".split()
    found = json.loads(output_of(str(BENCHMARKS / "to_arrow.py"), *arguments))["tiny"]
    assert (found["ops"], found["layers"]) == (42, 10)
    rows = found["milliseconds"]
    assert {"trace.to_arrow()", "edges", "FLOPs", "columns", "trace.tables.frames"} <= set(rows)
    assert all(len(samples) == 1 and samples[0] > 0 for samples in rows.values())
    assert found["first_ms"] > rows["trace.to_arrow()"][0]


def test_table_of_what_tables_take() -> None:
    shown = output_of(str(BENCHMARKS / "to_arrow.py"), *"--case tiny --ops 300 --repeats 1".split())
    assert "300 tiny operations: 302 ops in 10 layers" in shown
    assert re.search(r"^│ +edges +│ +[\d.,]+ │ +[\d.,]+ │$", shown, re.M)
    assert max(map(len, shown.splitlines())) <= 100
