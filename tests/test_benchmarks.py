"""The benchmark runs, and its figures are about what it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"
OPS = 50


def run(*arguments: str) -> str:
    command = [sys.executable, str(BENCHMARKS / "overhead.py"), "--case", "tiny", "--tiny-ops", str(OPS)]
    result = subprocess.run(
        [*command, "--repeats", "1", *arguments],
        capture_output=True, text=True, check=False, timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def figures() -> dict:
    return json.loads(run("--json"))["tiny"]


def test_counts_calls_and_ops(figures: dict) -> None:
    assert figures["calls"] == OPS
    assert figures["ops"] == OPS + 2  # the input and the output


def test_every_row_was_measured_in_turn(figures: dict) -> None:
    assert {"plain forward", "null mode, outputs kept", "trace"} <= figures["rows"].keys()
    for samples in figures["rows"].values():
        assert len(samples["milliseconds"]) == len(samples["page_faults"]) == 1


def test_counts_the_bytes_of_what_is_kept(figures: dict) -> None:
    of_one = 16 * 4
    assert figures["memory"]["storage_bytes"] == OPS * of_one
    assert figures["memory"]["kept_bytes"] == OPS * of_one
    assert figures["memory"]["value_bytes"] == (OPS + 2) * of_one


def test_table_fits_100_columns() -> None:
    table = run()
    assert "50 tiny operations: 50 torch calls, 52 ops" in table
    assert max(map(len, table.splitlines())) <= 100
