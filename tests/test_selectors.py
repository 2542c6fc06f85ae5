"""Selectors as data: how they combine, read, and refuse."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import torchlens as tl
from torchlens.errors import InputError


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
        self.head = torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.encoder(self.encoder(x))
        return self.head(torch.nn.functional.normalize(x, dim=-1) + 1)


@pytest.fixture(scope="module")
def trace() -> Any:
    return tl.trace(Net(), torch.ones(1, 4))


MEANT = {
    "func by the name in the code": (tl.func("__add__"), ["add_1:1"]),
    "func by type": (tl.func("add"), ["add_1:1"]),
    "func by torch's name": (tl.func("relu"), ["relu_1:1", "relu_1:2"]),
    "in_func": (
        tl.in_func("normalize"),
        ["linalg_vector_norm_1:1", "clamp_min_1:1", "expand_as_1:1", "truediv_1:1"],
    ),
    "output": (tl.output(), ["output_1:1"]),
    "module": (tl.module("encoder"), ["relu_1:1", "relu_1:2"]),
    "one call of a module": (tl.module("encoder:2"), ["relu_1:2"]),
    "in_module": (tl.in_module("encoder"), ["linear_1:1", "relu_1:1", "linear_1:2", "relu_1:2"]),
    "label of a layer": (tl.label("linear_1"), ["linear_1:1", "linear_1:2"]),
    "label of a pass": (tl.label("linear_1:2"), ["linear_1:2"]),
    "where": (tl.where(lambda op: op.shape == (1, 2)), ["linear_2:1", "output_1:1"]),
    "and": (tl.func("linear") & tl.in_module("head"), ["linear_2:1"]),
    "or": (tl.label("linear_1:1") | tl.module("head"), ["linear_1:1", "linear_2:1"]),
    "not": (tl.func("linear") & ~tl.in_module("encoder"), ["linear_2:1"]),
    "not not": (~~tl.func("add"), ["add_1:1"]),
}


@pytest.mark.parametrize("case", MEANT)
def test_means(trace: Any, case: str) -> None:
    selector, labels = MEANT[case]
    assert [op.label for op in trace.select(selector)] == labels


def test_line_is_found_by_the_end_of_its_path_and_at_any_depth(trace: Any) -> None:
    line = next(op for op in trace.ops if op.label == "add_1:1").call_site[0].line
    meant = [op.label for op in trace.select(tl.line(f"test_selectors.py:{line}"))]
    assert {"clamp_min_1:1", "truediv_1:1", "add_1:1"} <= set(meant)
    assert "linear_1:1" not in meant
    assert not trace.select(tl.line(f"selectors.py:{line}"))


def test_reads_as_it_was_written() -> None:
    selector = (tl.func("relu") & ~tl.in_module("a.0")) | tl.label("relu_1:2") | tl.line("m.py:3")
    text = "(((func('relu') & ~in_module('a.0')) | label('relu_1:2')) | line('m.py:3'))"
    assert str(selector) == text
    assert (
        str(tl.output() & tl.in_func("f") & tl.module("b:1")) == "((output() & in_func('f')) & module('b:1'))"
    )


def test_equal_selectors_are_equal() -> None:
    assert tl.func("a") & tl.label("b_1") == tl.func("a") & tl.label("b_1")
    assert tl.func("a") != tl.in_func("a")


BAD = {
    "func of a function": (lambda: tl.func(torch.relu), "give a function's name"),
    "in_func of None": (lambda: tl.in_func(None), "give a function's name"),
    "module of an index": (lambda: tl.module(0), "give an address"),
    "in_module of a module": (lambda: tl.in_module(torch.nn.ReLU()), "give an address"),
    "label that is none": (lambda: tl.label("encoder.0"), "is no label, which is a type and a number"),
    "line without a number": (lambda: tl.line("model.py"), "names no line"),
    "where of a string": (lambda: tl.where("relu"), "give a function of an op"),
    "and with a string": (lambda: tl.func("a") & "relu_1", "write tl.label"),
    "or with None": (lambda: tl.func("a") | None, "takes selectors on both sides"),
    "the word and": (lambda: tl.func("a") and tl.func("b"), "combine selectors with &, | and ~"),
}


@pytest.mark.parametrize("case", BAD)
def test_refuses(case: str) -> None:
    make, message = BAD[case]
    with pytest.raises(InputError, match=re.escape(message)):
        make()


def test_an_exception_of_a_predicate_comes_through_and_leaves_nothing_behind() -> None:
    with pytest.raises(ZeroDivisionError, match="division"):
        tl.trace(Net(), torch.ones(1, 4), save=tl.where(lambda op: 1 / 0))


def test_a_predicate_is_asked_once_for_each_op_right_after_it() -> None:
    asked: list[str] = []

    def remember(op: Any) -> bool:
        asked.append(op.label or op.kind)
        return bool(op.out.sum() > 0) and op.func_name != "linear"

    trace = tl.trace(Net(), torch.ones(1, 4), save=tl.where(remember) & tl.in_module("encoder"))
    assert len(asked) == len(set(asked))
    assert "linear_1:2" in asked
    assert trace["relu_1:1"].call_index  # the run itself is whole


def test_a_predicate_may_compute_and_none_of_it_is_recorded() -> None:
    full = tl.trace(Net(), torch.ones(1, 4))
    found = tl.trace(Net(), torch.ones(1, 4), save=tl.where(lambda op: bool((op.out * 2).isfinite().all())))
    assert [op.label for op in found.ops] == [op.label for op in full.ops]
