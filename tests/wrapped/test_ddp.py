"""DistributedDataParallel on two processes: each rank is captured as it is, under its own addresses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

dist = pytest.importorskip("torch.distributed", reason="this torch is built without torch.distributed")
pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="this torch is built without gloo")


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    file = tmp_path_factory.mktemp("ranks") / "store"
    words = [sys.executable, "-W", "ignore", "-m", "tests.wrapped.ddp_rank"]
    running = [
        subprocess.Popen(
            [*words, str(rank), str(file)],
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    told = []
    try:
        for process in running:
            output, errors = process.communicate(timeout=180)
            assert process.returncode == 0, errors
            told.append(json.loads(output))
    finally:
        for process in running:
            process.kill()  # one would wait for the other
    return told


@pytest.mark.parametrize("rank", [0, 1])
def test_each_rank_is_captured_as_it_runs(ranks: list[dict[str, Any]], rank: int) -> None:
    told = ranks[rank]
    assert told["same output"] is True
    assert told["same state"] is True
    assert told["verified"] == [True, True, True]
    assert told["check"] is True
    assert told["twice"] is True


@pytest.mark.parametrize("rank", [0, 1])
def test_addresses_are_those_of_the_wrapped_model(ranks: list[dict[str, Any]], rank: int) -> None:
    told = ranks[rank]
    assert told["modules"] == ["", "module", *(f"module.{at}" for at in range(4))]
    assert told["params"] == [f"module.{at}.{name}" for at in (0, 1) for name in ("weight", "bias")]
    assert told["calls"] == [":1", "module:1", *(f"module.{at}:1" for at in range(4))]


def test_the_doctor_says_so(ranks: list[dict[str, Any]]) -> None:
    for told in ranks:
        (text,) = told["doctor"]
        assert text.startswith(
            "DistributedDataParallel: one rank is captured, addresses begin with 'module.'"
        )


def test_gradients_are_averaged_under_a_capture_as_without(ranks: list[dict[str, Any]]) -> None:
    for told in ranks:
        assert told["gradients"] == [True] * 4
    assert ranks[0]["first weight gradient"] == ranks[1]["first weight gradient"]


def test_a_call_reads_the_buffers_that_rank_0_sent(ranks: list[dict[str, Any]]) -> None:
    """They are sent before the forward, where neither a call nor a version counter shows it."""
    assert [told["buffer was exchanged"] for told in ranks] == [False, True]
    assert ranks[0]["buffer read"] == ranks[1]["buffer read"]
