"""Traces from files against traces in memory, and against each other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import torchlens as tl
from tests import models
from tests.programs.examples import EXAMPLES
from tests.programs.reading import floats


def run(name: str) -> Any:
    example = EXAMPLES[name]
    torch.manual_seed(0)
    options = tl.options.CaptureOptions(seed=0)
    return tl.trace(example.build().eval(), example.inputs(), input_kwargs=example.kwargs(), capture=options)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_saved_run_is_the_run(name: str, tmp_path: Path) -> None:
    tl.save(run(name), tmp_path / "run.tlens", params=True)
    bundle = tl.Bundle({"saved": tl.load(tmp_path / "run.tlens"), "live": run(name)})
    for one, other in (("saved", "live"), ("live", "saved")):
        found = bundle.compare(one, other)
        assert found, found
        assert {row.by for row in found} == {"site"}
        assert not bundle.first_divergence(one, other)


def test_parameters_that_are_not_in_the_file_are_not_known(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = models.StackedBlocks()
    tl.save(tl.trace(model, floats(3, 4)), tmp_path / "run")
    with torch.no_grad():
        model.blocks[1].first.bias += 1
    bundle = tl.Bundle({"before": tl.load(tmp_path / "run"), "after": tl.trace(model, floats(3, 4))})
    found = bundle.first_divergence("before", "after")
    assert found and found.a.label == "linear_3:1"  # type: ignore[union-attr]
    assert found.inputs.ops == "agree" and found.inputs.params == "not known"  # type: ignore[union-attr]
    assert "parameters they could not be compared" in str(found)


SCRIPT = """
import sys, torch, torchlens as tl
from model import run
tl.save(tl.trace(run, torch.linspace(-1, 1, 6)), sys.argv[1])
"""
MODEL = """
import torch

def halved(x):
    return x / 2

def run(x):
    for _ in range({rounds}):
        x = halved(torch.tanh(x))
    return x + 1
"""


def test_runs_of_two_processes_and_two_versions_of_a_file(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    texts = (MODEL.format(rounds=2), "# a remark\n" + MODEL.format(rounds=3))
    for at, text in enumerate(texts):
        folder = tmp_path / f"version {at}"
        folder.mkdir()
        (folder / "model.py").write_text(text, encoding="utf-8")
        subprocess.run(
            [sys.executable, "-c", SCRIPT, str(tmp_path / f"{at}.tlens")],
            check=True, timeout=120, cwd=folder, env={"PYTHONPATH": f"{root}:{folder}", "PATH": ""},
        )  # fmt: skip
    old, new = (tl.load(tmp_path / f"{at}.tlens") for at in (0, 1))
    found = tl.Bundle({"old": old, "new": new}).compare("old", "new")
    assert {row.by for row in found} == {"site"} and not found.only_in_a
    assert [op.label for op in found.only_in_b] == ["tanh_1:3", "truediv_1:3"]
    assert [row.a.label for row in found.differing] == ["add_1:1", "output_1:1"]


def test_a_damaged_file_is_an_error_and_no_likeness(tmp_path: Path) -> None:
    for name in ("a", "b"):
        tl.save(tl.trace(torch.nn.ReLU(), torch.tensor([-1.0, 2.0])), tmp_path / name)
    values = tmp_path / "b" / "values-00000.safetensors"
    octets = bytearray(values.read_bytes())
    begin = 8 + int.from_bytes(octets[:8], "little")
    values.write_bytes(octets[:begin] + bytes(~octet & 255 for octet in octets[begin:]))
    bundle = tl.Bundle({name: tl.load(tmp_path / name) for name in ("a", "b")})
    for ask in (bundle.compare, bundle.first_divergence):
        with pytest.raises(tl.errors.DamagedFileError, match="are not those that were written"):
            ask("a", "b")
