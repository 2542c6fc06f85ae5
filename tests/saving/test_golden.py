"""Files that earlier releases wrote are read, and answer what they answered then."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import torchlens as tl
from tests.saving.golden_runs import DIRECTORY, RUNS, inputs, path_of, text_of, whole
from torchlens.saving.layout import VERSION

FILES = sorted(DIRECTORY.glob("*.tlens"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_of_an_earlier_release_answers_as_it_did(path: Path) -> None:
    assert text_of(tl.load(path)) == path.with_suffix(".txt").read_text(encoding="utf-8")


def test_every_sort_of_run_is_kept_for_the_version() -> None:
    assert {path.name for path in FILES} >= {path_of(name, VERSION).name for name in RUNS}


def test_the_values_are_those_of_hand_arithmetic() -> None:
    loaded = tl.load(path_of("whole"))
    weight = torch.arange(9.0).reshape(3, 3) / 8
    expected = torch.tanh(inputs() @ weight.T + torch.tensor([0.5, -1.0, 2.0]))
    for number, op in enumerate(loaded["tanh_1"].ops):
        assert torch.allclose(op.out, expected[number])
    assert torch.allclose(loaded.output.low, expected.relu())
    assert loaded.output.rest[3][1:] == [None, float("inf")]
    assert torch.equal(loaded.params["linear.weight"].value, weight)
    assert [op.out.item() for op in loaded.buffers["count"].versions] == [0, 1]


def test_the_record_still_holds_and_its_calls_can_be_made_again() -> None:
    for name in ("whole", "some"):
        report = tl.load(path_of(name)).check()
        assert report, str(report)
    assert tl.load(path_of("whole")).check().checked > 30


def test_the_same_run_today_has_the_same_layers_and_edges() -> None:
    tl.testing.assert_same_graph(tl.load(path_of("whole")), whole())
