"""docs/cli.md: each command on it runs, and each key of the JSON is on it."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from tests.cli.running import data, run
from torchlens._records import FailedArgument, FailedCall, Failure, SourceLine
from torchlens.comparing.comparison import ComparedOp, LoneOp
from torchlens.comparing.differences import Difference
from torchlens.comparing.divergence import Side
from torchlens.comparing.excess import Excess
from torchlens.comparing.inputs import Inputs
from torchlens.report.doctor_page import Row
from torchlens.report.op_facts import OpFacts
from torchlens.report.run_figures import EndFigures, RunFigures
from torchlens.report.statistics import Bin, Statistics
from torchlens.validation.findings import Finding

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
KINDS = (
    RunFigures, EndFigures, Failure, FailedCall, FailedArgument, SourceLine, OpFacts, Statistics, Bin, Row,
    Finding, LoneOp, ComparedOp, Difference, Excess, Inputs, Side,
)  # fmt: skip


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)


def test_the_commands_run(files: Path) -> None:
    (files / "model.py").write_text(blocks("python")[0])
    commands = [line.split() for block in blocks("sh") for line in block.splitlines()]
    assert {words[1] for words in commands} == {
        "demo", "summary", "save", "show", "draw", "compare", "export", "doctor",
    }  # fmt: skip
    for program, *words in commands:
        result = run(*words)
        assert program == "torchlens"
        assert result.exit_code == 0, (words, result.output, result.exception)


def test_each_key_is_on_the_page() -> None:
    names = {each.name for kind in KINDS for each in fields(kind)}
    assert sorted(name for name in names if f"`{name}`" not in PAGE) == []


def test_the_keys_of_the_other_commands_are_on_the_page(files: Path) -> None:
    subject = ("net.py:net", "-i", "3,4")
    assert run("save", *subject, "-o", "run.tlens").exit_code == 0
    pages = [
        data("compare", "run.tlens", "run.tlens"),
        data("doctor", "run.tlens"),
        data("doctor", *subject),
        data("show", "run.tlens", "linear_1"),
    ]
    found = {name for page in pages for name in page}
    parted = data("compare", "run.tlens", *subject, "--seed", "1")["first_divergence"]
    found |= parted.keys() | parted["before"].keys() | parted["tolerance"].keys()
    assert sorted(name for name in found if f"`{name}`" not in PAGE) == []
