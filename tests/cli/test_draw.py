"""`torchlens draw`: the picture is what `Trace.draw` gives for what was asked."""

from __future__ import annotations

import re
import shutil
import sys
from enum import Enum
from pathlib import Path
from typing import Any, get_args
from xml.etree import ElementTree

import pytest
import typer

import torchlens as tl
from tests.cli.running import run
from torchlens.cli.commands.draw import ColorBy, Direction, Program, draw
from torchlens.cli.picture_endings import ENDINGS
from torchlens.drawing import dot, picture, quantities, rendering

SAY_WHERE = "say where the picture goes, such as -o model.svg, .png, .pdf, .dot or .html"
NET = ("net.py:net", "-i", "3,4")
DEEP = """\
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
    def forward(self, x):
        return torch.relu(self.linear(x))

class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(*(Block() for _ in range(4)))
        self.relu = nn.ReLU()
    def forward(self, x):
        for _ in range(2):
            x = self.blocks(x)
        return self.relu(x).transpose(0, 1)

class Numbered(nn.Sequential):
    def __init__(self):
        super().__init__(Block(), nn.Sequential(Block()))

class Odd(nn.Sequential):
    def __init__(self):
        super().__init__()
        self.add_module("\\u6ce8", nn.ReLU())
"""
DEEP_RUN = ("deep.py:Deep", "-i", "3,4")


@pytest.fixture(autouse=True)
def _deep(files: Path) -> None:
    (files / "deep.py").write_text(DEEP)


def drawn(*words: str) -> str:
    """The DOT text of a picture."""
    result = run("draw", *words, "-o", "drawn.dot")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    return Path("drawn.dot").read_text("utf-8")


def by_python(**options: Any) -> str:
    if not Path("deep.tlens").exists():
        assert run("save", *DEEP_RUN, "-o", "deep.tlens").exit_code == 0
    return tl.load("deep.tlens").draw(**options).dot


def texts(path: str) -> list[str]:
    root = ElementTree.fromstring(Path(path).read_bytes())
    return ["".join(text.itertext()) for text in root.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize(
    ("name", "begins"),
    [("a.svg", b"<?xml"), ("made/here/a.PNG", b"\x89PNG"), ("a.pdf", b"%PDF"), ("a.gv", b"digraph")],
)
def test_the_form_is_that_of_the_ending(name: str, begins: bytes) -> None:
    for _ in range(2):  # a file that is there is replaced
        result = run("draw", *NET, "-o", name)
        assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    assert Path(name).read_bytes().startswith(begins)


def test_a_page_has_the_values_for_its_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[bool] = []
    before = tl.Trace.draw

    def seen(trace: tl.Trace, *words: Any, **options: Any) -> Any:
        kept.append(trace.memory.num_storages > 1)
        return before(trace, *words, **options)

    monkeypatch.setattr(tl.Trace, "draw", seen)
    for name in ("a.html", "a.svg"):
        assert run("draw", *NET, "-o", name).exit_code == 0
    assert kept == [True, False]
    assert Path("a.html").read_text("utf-8").startswith("<")


def test_a_saved_trace_is_drawn_as_its_run() -> None:
    assert drawn(*DEEP_RUN) == by_python()
    assert drawn("deep.tlens", "--rolled") == drawn(*DEEP_RUN, "--rolled")


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("--rolled", {"rolled": True}),
        ("--depth 1", {"depth": 1}),
        ("--collapse blocks.0", {"collapse": "blocks.0"}),
        ("--collapse blocks:2 --collapse ReLU", {"collapse": ["blocks:2", "ReLU"]}),
        ("--collapse Block", {"collapse": "Block"}),
        ("--collapse 1", {"collapse": 1}),
        ("--hide transpose", {"hide": tl.func("transpose")}),
        ("--hide transpose_1 --hide blocks", {"hide": ["transpose_1", "blocks"]}),
        ("--hide relu", {"hide": tl.func("relu") | tl.module("relu")}),
        ("--focus blocks:2", {"focus": "blocks:2"}),
        ("--color-by flops", {"color_by": "flops"}),
        ("--direction right", {"direction": "right"}),
        ("--no-fold", {"fold": False}),
    ],
)
def test_an_option_means_what_it_means_in_python(words: str, options: dict[str, Any]) -> None:
    found = drawn(*DEEP_RUN, *words.split())
    assert found == by_python(**options)
    assert found != by_python()


def test_a_number_is_an_address_where_a_module_has_it() -> None:
    numbered = "deep.py:Numbered", "-i", "3,4"
    whole, first, deep = (
        drawn(*numbered, *words) for words in ([], ["--collapse", "0"], ["--collapse", "2"])
    )
    assert "linear_1" in whole and "linear_2" in whole
    assert "linear_1" not in first and "linear_2" in first
    assert "linear_1" in deep and "linear_2" not in deep


def test_names_of_choices_are_the_librarys() -> None:
    pairs: list[tuple[type[Enum], object]] = [
        (ColorBy, quantities.QuantityName),
        (Direction, dot.Direction),
        (Program, rendering.Program),
    ]
    for ours, theirs in pairs:
        assert tuple(each.value for each in ours) == get_args(theirs)
    assert ENDINGS == (*picture.FORMS, *picture.DOT_ENDINGS, *picture.PAGE_ENDINGS)


def test_without_a_path_dot_text_goes_to_stdout() -> None:
    result = run("draw", *DEEP_RUN)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == by_python()


def test_a_terminal_is_asked_for_a_path(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with pytest.raises(typer.Exit, match="2"):
        draw("nosuch.py:Net")
    assert capsys.readouterr() == ("", f"torchlens: {SAY_WHERE}\n")


def test_what_ran_of_a_failing_model_is_drawn() -> None:
    result = run("draw", "net.py:net", "-i", "3,5", "-o", "failed.svg")
    assert result.exit_code == 1
    assert "the model raised RuntimeError: mat1 and mat2 shapes" in result.stderr
    assert {"input_1", "Net · 1 op · failed"} <= set(texts("failed.svg"))
    assert run("save", "net.py:net", "-i", "3,5", "-o", "failed.tlens").exit_code == 1
    again = run("draw", "failed.tlens", "-o", "again.svg")
    assert (again.exit_code, again.stderr) == (1, result.stderr)
    assert texts("again.svg") == texts("failed.svg")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("net.py:net -o a.svg", "raised TypeError: .*--input gives it inputs; nothing ran before that could"),
        ("nosuch.py:net -o a.jpg", r"'a.jpg' ends in no form of a picture; it is to end in \.svg, "),
        ("net.py:net -i 3,4 -o a.svg --hide nosuch", "no layer or op is called 'nosuch'"),
        ("net.py:net -i 3,4 -o a.svg --focus nosuch", "'nosuch'"),
        ("net.py:net -i 3,4 -o a.svg --collapse nosuch", "'nosuch'"),
        ("net.py:net -i 3,4 -o net.py/a.svg", "cannot be written: "),
        ("net.py:net -i 3,4 -o a.svg --color-by depth", "time"),
        ("net.py:net -i 3,4 -o a.html --depth 2", "depth= is for pictures"),
    ],
)
def test_what_cannot_be_drawn_is_told(words: str, message: str) -> None:
    result = run("draw", *words.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert re.search(message, result.stderr)
    assert not list(Path().glob("a.*"))


def test_a_time_limit_that_is_too_short() -> None:
    result = run("draw", *NET, "-o", "a.svg", "--time-limit", "0.001")
    assert result.exit_code == 2
    assert "was not done after 0.001 s" in result.stderr


def test_a_warning_is_a_line() -> None:
    result = run("draw", "deep.py:Odd", "-i", "3,4", "-o", "a.png")
    assert result.exit_code == 0
    assert (
        result.stderr.startswith("torchlens: the PNG has boxes in place of 注")
        and "\n" not in result.stderr[:-1]
    )


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_an_installed_graphviz_draws_the_same_texts() -> None:
    for program in ("dot", "graphviz-pure"):
        assert run("draw", *DEEP_RUN, "--program", program, "-o", f"{program}.svg").exit_code == 0
    assert sorted(texts("dot.svg")) == sorted(texts("graphviz-pure.svg"))


@pytest.mark.parametrize("name", ["both.svg", "both.html"])
def test_two_runs_that_are_compared_are_drawn_too(name: str) -> None:
    words = "compare", "net.py:net", "net.py:Outer.Inner", "-i", "3,4"
    plain, with_picture = run(*words), run(*words, "--draw", name)
    assert (with_picture.exit_code, with_picture.stdout) == (plain.exit_code, plain.stdout)
    assert Path(name).read_bytes().startswith(b"<")
    refused = run(*words, "--draw", "both.jpg")
    assert refused.exit_code == 2 and "'both.jpg' ends in no form of a picture" in refused.stderr
