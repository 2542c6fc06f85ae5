"""Modules in which nothing ran, and traces that hold no parameters, are drawn like any other."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import torchlens as tl


@pytest.mark.parametrize("rolled", [False, True])
@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Identity(), nn.ReLU()),
        nn.Sequential(nn.ReLU(), nn.Sequential(nn.Identity())),
        nn.Sequential(nn.Sequential(nn.Identity()), nn.Identity(), nn.ReLU()),
    ],
)
def test_a_module_in_which_nothing_ran_is_left_out(model: nn.Module, rolled: bool) -> None:
    dot = tl.trace(model, torch.ones(1)).draw(rolled=rolled).dot
    assert "relu_1" in dot and "Identity" not in dot


def test_a_closed_module_of_a_saved_trace_tells_its_parameters(tmp_path: Path) -> None:
    trace = tl.trace(nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.ReLU())), torch.ones(1, 2))
    tl.save(trace, tmp_path / "run.tlens")
    dot = tl.load(tmp_path / "run.tlens").draw(depth=1).dot
    assert dot == trace.draw(depth=1).dot
    assert "2 ops · 6 params" in dot
