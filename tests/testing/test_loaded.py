"""What is asserted of a trace is asserted alike of one that was saved and loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import torchlens as tl
from tests import models
from torchlens.errors import TraceAssertionError
from torchlens.testing import Snapshot, assert_finite, assert_same_graph, last_ops


def reloaded(trace: Any, folder: Path) -> Any:
    tl.save(trace, folder / "run.tlens")
    return tl.load(folder / "run.tlens")


@pytest.mark.parametrize("options", [{}, {"save": ["tanh_1", tl.func("add")]}], ids=["all kept", "few kept"])
def test_it_meets_the_snapshot_of_the_live_one(options: dict[str, Any], tmp_path: Path) -> None:
    trace = tl.trace(models.encoder().eval(), torch.ones(1, 3, 4))
    if options:
        trace = tl.trace(models.LoopsOverParameters(), torch.ones(1, 4), **options)
    loaded = reloaded(trace, tmp_path)
    snapshot = Snapshot(tmp_path / "a.txt")
    snapshot.update(trace, values="exact")
    snapshot.check(loaded, values="exact")
    snapshot.check(loaded)
    assert_same_graph(trace, loaded)
    assert str(assert_finite(loaded)) == str(assert_finite(trace))
    assert last_ops(loaded) == last_ops(trace)


def test_unfilled_memory_is_known_of_it_too(tmp_path: Path) -> None:
    def fills(x: Tensor) -> Tensor:
        room = torch.empty(2, 2)
        room[0] = x
        return room[0] * 2

    trace = tl.trace(fills, torch.ones(2))
    snapshot = Snapshot(tmp_path / "a.txt")
    snapshot.update(trace)
    snapshot.check(reloaded(trace, tmp_path))
    assert "unfilled 1/1" in snapshot.path.read_text(encoding="utf-8")


def test_the_first_that_is_not_finite(tmp_path: Path) -> None:
    trace = tl.trace(lambda x: torch.log(x) + 1, torch.zeros(2))
    messages = []
    for each in (trace, reloaded(trace, tmp_path)):
        with pytest.raises(TraceAssertionError, match="log_1:1 makes") as caught:
            assert_finite(each)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
