"""What a person reads, as text."""

from __future__ import annotations

import gc
import io
import re
import weakref
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor, nn

import torchlens as tl
from tests import models
from tests.programs.examples import EXAMPLES, floats
from torchlens.report.summary import Summary
from torchlens.report.text import as_text


def summary_of(model: Any, *inputs: Any) -> Summary:
    return tl.trace(model, inputs).summary()


def timeless(summary: Summary) -> Summary:
    """The same without times, which change from run to run."""
    for entry in summary.tree.walk():
        entry.amounts.nanoseconds = 0
    totals = tuple(total for total in summary.overview.totals if total[0] != "time")
    return replace(summary, overview=replace(summary.overview, totals=totals))


def test_exact_text() -> None:
    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = models.ResidualBlock()
            self.head = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(3):
                x = torch.tanh(self.block(x))
            return self.head(x.flatten(1))

    assert as_text(timeless(summary_of(Small(), floats(3, 1, 4))), 80) == (
        """\
Small · forward, complete
input      input_1 3×1×4 float32 cpu
output     output_1 3×2 float32 cpu

module, layer                    output  params  FLOPs  time
Small                            3×2         50    732
├ block ResidualBlock ×3         3×1×4       40    648
│ ├ first Linear · linear_1 ×3   3×1×4       20    288
│ ├ add_1 ×3                     3×1×4              36
│ ├ second Linear · linear_2 ×3  3×1×4       20    288
│ └ add_2 ×3                     3×1×4              36
├ tanh_1 ×3                      3×1×4              36
├ flatten_1                      3×4                 0
└ head Linear · linear_3         3×2         10     48

ops        19 ops in 9 layers
modules    11 calls of 5 modules
parameters 50, all trainable, 200 B
FLOPs      732 FLOPs, 312 MACs
values     792 B kept in 17 distinct storages, parameters not counted

×n: n calls of a module, n passes of a layer"""
    )


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("name", EXAMPLES)
def test_no_line_is_wider_than_asked(name: str, width: int) -> None:
    example = EXAMPLES[name]
    trace = tl.trace(example.build(), example.inputs(), input_kwargs=example.kwargs())
    lines = as_text(trace.summary(), width).splitlines()
    assert max(map(len, lines)) <= width
    assert all(line == line.rstrip() for line in lines)


def test_columns_are_left_out_where_there_is_no_room() -> None:
    summary = summary_of(nn.Linear(4, 2), floats(3, 4))
    heads = [
        next(
            line.split() for line in as_text(summary, width).splitlines() if line.startswith("module, layer")
        )
        for width in (80, 54, 46, 38)
    ]
    assert [head[2:] for head in heads] == [
        ["output", "params", "FLOPs", "time"],
        ["output", "params", "FLOPs"],
        ["output", "params"],
        ["output"],
    ]


def test_a_label_that_does_not_fit_beside_its_module_stands_below_it() -> None:
    class Pools(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.average_over_space = nn.AdaptiveAvgPool2d(1)

        def forward(self, x: Tensor) -> Tensor:
            return self.average_over_space(x)

    lines = as_text(summary_of(Pools(), floats(1, 2, 3, 3)), 64).splitlines()
    at = next(i for i, line in enumerate(lines) if "average_over_space" in line)
    assert lines[at].startswith("└ average_over_space Adaptive")
    assert lines[at + 1] == "  └ adaptive_avg_pool2d_1"


def test_plain_text_has_no_escape_codes() -> None:
    trace = tl.trace(models.ReusedBlock(), floats(3, 4))
    file = io.StringIO()
    Console(file=file, width=80).print(trace.summary())
    for text in (str(trace.summary()), repr(trace.summary()), str(trace), file.getvalue()):
        assert "\x1b" not in text
        assert "ReusedBlock" in text


def test_a_terminal_gets_colours() -> None:
    file = io.StringIO()
    summary = summary_of(models.Looped(), floats(3, 4))
    Console(file=file, width=80, force_terminal=True, color_system="truecolor").print(summary)
    assert "\x1b[" in file.getvalue()
    assert re.sub(r"\x1b\[[\d;]*m", "", file.getvalue()).split() == as_text(summary, 80).split()


def test_a_terminal_without_unicode_gets_ascii() -> None:
    text = as_text(summary_of(models.ReusedBlock(), floats(3, 4)), 80, encoding="ascii")
    assert text.isascii()
    assert "`-block ResidualBlock x3" in text


def test_notebooks_get_escaped_html() -> None:
    html = summary_of(lambda x: torch.relu(x), floats(3))._repr_html_()
    assert html.startswith("<pre")
    assert html.endswith("</pre>")
    assert "&lt;lambda&gt;" in html
    assert "<lambda>" not in html


def test_a_summary_outlives_its_trace() -> None:
    trace = tl.trace(models.Looped(), floats(3, 4))
    value = weakref.ref(trace["mul_1:3"].out)
    summary = trace.summary()
    before = str(summary)
    trace.cleanup()
    gc.collect()
    assert value() is None
    assert str(summary) == before


def test_a_folded_summary_says_how_to_open_it() -> None:
    model = nn.Sequential(*(models.ResidualBlock() for _ in range(3)))
    summary = summary_of(model, floats(3, 4))
    assert "trace.summary(fold=False)" in str(summary)
    assert "trace.summary(depth=2)" in str(replace(summary, depth=1))
    assert "trace.summary(" not in str(replace(summary, fold=False))
    assert str(replace(summary, fold=False)).count("ResidualBlock") == 3


def test_a_few_lines_describe_a_trace() -> None:
    text = repr(tl.trace(models.ReusedBlock(), floats(3, 4)))
    assert text.splitlines() == [
        "ReusedBlock · forward, complete",
        "input      input_1 3×4 float32 cpu",
        "output     output_1 3×4 float32 cpu",
        "ops        14 ops in 6 layers",
        "parameters 40, all trainable, 160 B",
        "FLOPs      648 FLOPs, 288 MACs",
        "values     624 B kept in 13 distinct storages, parameters not counted",
        "trace.summary() shows its modules and layers",
    ]


def test_many_outputs_are_counted() -> None:
    text = str(summary_of(lambda x: tuple(x.unbind()), floats(9, 2)))
    assert "output     output_1 2 float32 cpu\n" in text
    assert "output_6 2 float32 cpu\n           and 3 more\n" in text


def test_signs_are_explained_where_they_are_used() -> None:
    def unique(x: Tensor) -> Tensor:
        return F.relu(x).unique()

    plain = str(summary_of(nn.Linear(4, 2), floats(3, 4)))
    assert not re.search(r"^(×n|free|\(n\)|n\+)", plain, re.M)
    assert "(n): parameters counted further up" in str(summary_of(models.TiedWeights(), torch.tensor([[1]])))
    assert "n+ and ?: some or all calls" in str(summary_of(unique, floats(3)))
    assert "×n/m: n of its m passes" in str(summary_of(models.SharedByTwoParents(), floats(3, 4)))
