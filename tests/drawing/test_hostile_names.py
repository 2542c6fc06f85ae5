"""Names that mean something to DOT, to HTML or to XML come out of both programs as text."""

from __future__ import annotations

import shutil
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from torch import nn

import torchlens as tl
from torchlens.drawing.dot import clean
from torchlens.drawing.rendering import Program

LONG = "x" * 300
NAMES = (
    'say "hi"',
    "back\\slash",
    "end\\",
    '\\"',
    "\\\n",
    r"\N",
    r"\G",
    r"\E\T\H\L\l\r\n",
    r"\\N",
    "<b>bold</b>",
    "<TABLE>",
    "<",
    ">",
    "]]>",
    "<![CDATA[",
    "<!--",
    "-->",
    "</script>",
    "&amp;",
    "&#65;",
    "&",
    "a]",
    "a[0]",
    "{a|b}",
    "->",
    "--",
    ";",
    "#",
    "//",
    "/*",
    "a:b",
    ":1",
    "=",
    ",",
    "'",
    "%s",
    "line\nbreak",
    "tab\tstop",
    "cr\rlf",
    "nul\0",
    "bell\x07esc\x1b",
    "\x7f\x85",
    "\ufffe\uffff",
    "\ud800lone",
    "emoji 🎉👩\u200d👩\u200d👧",
    "中文",
    "שלום",
    "rtl\u202eabc",
    "\ufeff\u200b\u2028",
    "e\u0301",
    "node",
    "edge",
    "graph",
    "digraph",
    "subgraph",
    "strict",
    "cluster_f1",
    "n1",
    "100",
    "-1",
    " ",
    "  two  spaces ",
    LONG,
)
PROGRAMS = (
    "graphviz-pure",
    pytest.param(
        "dot", marks=pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
    ),
)


class Inner(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.register_parameter(name, nn.Parameter(torch.ones(2)))

    def forward(self, x: torch.Tensor, **named: torch.Tensor) -> dict[str, torch.Tensor]:
        scaled = x * self._parameters[self.name] + sum(named.values())
        return {self.name: scaled.relu()}


class Outer(nn.Module):
    def __init__(self, name: str, inner: nn.Module) -> None:
        super().__init__()
        self.add_module(name, inner)

    def forward(self, x: torch.Tensor, **named: torch.Tensor) -> Any:
        (inner,) = self.children()
        return inner(x, **named)


def named(base: type[nn.Module], name: str) -> type[nn.Module]:
    """A class of that name, where Python allows it."""
    try:
        return type(name, (base,), {})
    except (ValueError, UnicodeEncodeError):  # it has a NUL, or a lone surrogate
        return base


def traced(name: str) -> tl.Trace:
    """A run in which modules, classes, a parameter, an input and an output have that name."""
    inner = named(Inner, name)(name)
    model = named(Outer, name)(name, inner)
    return tl.trace(model, torch.ones(1, 2), input_kwargs={name: torch.ones(1, 2)}, save=[])


def text_of(name: str) -> str:
    """The name in a line: what no line of text can hold is spelled out, the middle of a long one left out."""
    return clean(name if name != LONG else f"{'x' * 29}…{'x' * 30}").replace("\n", r"\n")


def shown(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    found = ["".join(text.itertext()) for text in root.iter("{http://www.w3.org/2000/svg}text")]
    return [text.replace("\xa0", " ") for text in found]


def tooltips(svg: str) -> list[str]:
    found = (each.get("{http://www.w3.org/1999/xlink}title") for each in ElementTree.fromstring(svg).iter())
    return [text.replace("\xa0", " ") for text in found if text is not None]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_name_is_text(name: str, program: Program) -> None:
    trace = traced(name)
    short = text_of(name)
    for depth in (None, 1, 0):  # all open; a closed module; a closed root
        svg = trace.draw(depth=depth, program=program).svg
        count = sum(short in text for text in shown(svg))
        assert count >= (2 if depth != 0 else 1)
    inner = tooltips(trace.draw(depth=1, program=program).svg)
    assert any(clean(name) in text for text in inner)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(
    "word", ["<b>", "&amp;", r"\N\G\E", "nul\0", "\ud800lone", "line\nbreak", '"'], ids=ascii
)
def test_a_word_of_a_legend_is_text(word: str, program: Program) -> None:
    svg = traced("plain").draw(color_by=lambda op: word, depth=0, program=program).svg
    nodes = 4  # two inputs, the closed model, an output
    assert sum(text_of(word) == text for text in shown(svg)) == nodes + 1


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_class_and_a_word_without_a_letter(program: Program) -> None:
    model = type("", (nn.ReLU,), {})()
    svg = tl.trace(model, torch.ones(1)).draw(color_by=lambda op: "", program=program).svg
    assert "root" in shown(svg)
