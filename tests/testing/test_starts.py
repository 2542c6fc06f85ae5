"""What a failure says first of a layer: its line of code, and whether the differences start there."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import torchlens as tl
from torchlens.errors import InputError, TraceAssertionError
from torchlens.testing import Snapshot, assert_finite, assert_same_graph, last_ops
from torchlens.testing.starts import find_starts

STARTS_HERE = "starts here"
X = torch.tensor([0.5, 1.0, 2.0])


def rows(snapshot: Snapshot, trace: Any, **options: Any) -> list[str]:
    with pytest.raises(TraceAssertionError, match="the trace is not as") as caught:
        snapshot.check(trace, **options)
    return [line.strip() for line in str(caught.value).splitlines() if line.startswith("  ")]


def marked(lines: list[str]) -> dict[str, str]:
    """Name to mark, of the rows that have one."""
    return {line.split()[0]: line.partition("  <- ")[2] for line in lines if "  <- " in line}


def two_branches(left: float, right: float) -> Callable[[Tensor], Tensor]:
    def run(x: Tensor) -> Tensor:
        one = torch.sin(x * left)
        other = torch.cos(x + right)
        return one - other

    return run


def test_the_line_stands_behind_the_label_once_a_layer(snapshot: Snapshot) -> None:
    snapshot.update(tl.trace(two_branches(1, 1), X))
    first = two_branches.__code__.co_firstlineno
    lines = rows(snapshot, tl.trace(two_branches(1, 2), X))
    assert [line.split("  ")[0] for line in lines] == [
        f"add_1 (test_starts.py:{first + 3})",
        f"cos_1 (test_starts.py:{first + 3})",
        f"sub_1 (test_starts.py:{first + 4})",
        "output_1",
    ]
    assert marked(lines) == {"add_1": STARTS_HERE}
    both = rows(snapshot, tl.trace(two_branches(2, 2), X), values="stats")
    assert marked(both) == {"mul_1": STARTS_HERE, "add_1": STARTS_HERE}
    longer = rows(snapshot, tl.trace(two_branches(1, 1), torch.ones(4).double()))
    assert longer[2].startswith("mul_1 (test_starts.py:")
    assert longer[3].startswith("mul_1    "), "the second row of the layer repeats no line"


def test_the_innermost_line_that_is_not_of_torch(snapshot: Snapshot) -> None:
    def inner(x: Tensor, factor: float) -> Tensor:
        return nn.functional.gelu(x * factor)

    def outer(factor: float) -> Callable[[Tensor], Tensor]:
        return lambda x: nn.functional.softmax(inner(x, factor), 0)

    start = inner.__code__.co_firstlineno
    snapshot.update(tl.trace(outer(1), X))
    lines = rows(snapshot, tl.trace(outer(3), X))
    assert [line.split("  ")[0] for line in lines[:3]] == [
        f"mul_1 (test_starts.py:{start + 1})",
        f"gelu_1 (test_starts.py:{start + 1})",
        f"softmax_1 (test_starts.py:{start + 4})",
    ]


class Loop(nn.Module):
    def __init__(self, factor: float, after: float = 1) -> None:
        super().__init__()
        self.factor, self.after = factor, after

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = torch.tanh(x * self.factor)
        return x + self.after


def test_layers_of_a_loop_are_not_told_apart(snapshot: Snapshot) -> None:
    snapshot.update(tl.trace(Loop(1), X))
    lines = rows(snapshot, tl.trace(Loop(2, 5), X))
    assert marked(lines) == {"mul_1": "starts in the loop from here to tanh_1"}
    assert marked(rows(snapshot, tl.trace(Loop(1, 5), X))) == {"add_1": STARTS_HERE}
    assert marked(rows(snapshot, tl.trace(Loop(1), X + 1))) == {"input_1": STARTS_HERE}


def test_a_change_of_structure_in_a_loop_is_the_start(snapshot: Snapshot) -> None:
    class Other(Loop):
        def forward(self, x: Tensor) -> Tensor:
            for _ in range(3):
                x = torch.sigmoid(x * self.factor)
            return x + self.after

    for values in ("stats", "exact"):
        snapshot.update(tl.trace(Loop(1), X), values=values)
        lines = rows(snapshot, tl.trace(Other(1), X), values=values)
        assert marked(lines)["sigmoid_1"] == STARTS_HERE
        assert "mul_1" in {line.split()[0] for line in lines}
        assert len(marked(lines)) == 1, lines


def test_exact_values_tell_the_layers_of_a_loop_apart(snapshot: Snapshot) -> None:
    """`elu` is the first op of the loop to give something else, in the first pass or in a later one."""

    def loop(factors: list[float]) -> Callable[[Tensor], Tensor]:
        def run(x: Tensor) -> Tensor:
            for factor in factors:
                x = nn.functional.elu(x - 1, alpha=factor)
            return x

        return run

    snapshot.update(tl.trace(loop([1, 1, 1]), X), values="exact")
    for factors, number in (([2, 2, 2], 1), ([1, 1, 2], 3)):
        lines = rows(snapshot, tl.trace(loop(factors), X), values="exact")
        assert marked(lines) == {"elu_1": STARTS_HERE}
        assert f"  pass {number}: " in lines[0]
    assert marked(rows(snapshot, tl.trace(loop([2, 2, 2]), X))) == {
        "sub_1": "starts in the loop from here to elu_1"
    }


def test_what_reads_a_value_that_is_not_kept_may_not_be_the_start(snapshot: Snapshot) -> None:
    snapshot.update(tl.trace(two_branches(1, 1), X, save=["sub_1", "mul_1"]))
    lines = rows(snapshot, tl.trace(two_branches(1, 2), X, save=["sub_1", "mul_1"]))
    assert [line.split()[0] for line in lines] == ["sub_1", "output_1"]
    assert marked(lines) == {}
    lines = rows(snapshot, tl.trace(two_branches(2, 2), X, save=["sub_1", "mul_1"]))
    assert marked(lines) == {}, "the input was not kept"


def test_a_layer_that_is_gone_is_the_start_for_those_that_read_it(snapshot: Snapshot) -> None:
    snapshot.update(tl.trace(nn.Sequential(nn.ReLU(), nn.Tanh(), nn.Sigmoid()), X))
    lines = rows(snapshot, tl.trace(nn.Sequential(nn.ReLU(), nn.Identity(), nn.Sigmoid()), X))
    assert lines[0] == "tanh_1     is gone, after relu_1, in 1  <- starts here"
    assert marked(lines) == {"tanh_1": STARTS_HERE}


GRAPHS = st.lists(st.frozensets(st.integers(0, 7), max_size=3), min_size=8, max_size=8)


@given(GRAPHS, st.frozensets(st.integers(0, 7)), st.frozensets(st.integers(0, 7)))
def test_every_difference_is_explained(
    graph: list[frozenset[int]], differing: frozenset[int], uncertain: frozenset[int]
) -> None:
    """Loops in any direction: each layer that differs comes from one that is marked, or is not certain."""
    uncertain &= differing
    parents = dict(enumerate(graph))
    groups = find_starts(sorted(differing), parents, uncertain)
    alone = {group[0] for group in groups if len(group) == 1}
    starts = {at for group in groups for at in group}
    assert starts <= differing - uncertain
    assert len(starts) == sum(map(len, groups))
    for at in differing:
        others = (graph[at] - {at}) & differing
        if not others and at not in uncertain:
            assert at in alone
        if at in alone:
            assert not others
        above = ancestors(at, parents, differing)
        assert not above.isdisjoint(starts | uncertain)
    for group in groups:
        assert all(ancestors(at, parents, differing) == set(group) for at in group), "all of one loop"


def ancestors(at: int, parents: dict[int, frozenset[int]], differing: frozenset[int]) -> set[int]:
    found = {at}
    while more := {p for each in found for p in parents[each] & differing} - found:
        found |= more
    return found


def infinite(divisor: float, dtype: torch.dtype = torch.float32) -> Any:
    return tl.trace(lambda x: x / divisor, torch.tensor([[1.0, -1.0], [2.0, 0.5]], dtype=dtype))


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (infinite(1), infinite(0), "4 inf of 4 elements, none before"),
        (infinite(0), infinite(1), "no inf of 4 elements, 4 before"),
        (infinite(0), infinite(math.nan), "4 NaN of 4 elements, none before; no inf of 4 elements, 4 before"),
        (
            infinite(1, torch.complex64),
            infinite(0, torch.complex64),
            "4 NaN, none before; 4 inf, none before",
        ),
    ],
    ids=["made", "gone", "others", "complex"],
)
def test_what_is_not_finite_is_said_first(before: Any, now: Any, expected: str, snapshot: Snapshot) -> None:
    snapshot.update(before)
    lines = rows(snapshot, now)
    assert re.fullmatch(rf"truediv_1 \(test_starts\.py:\d+\)  {expected}  <- starts here", lines[0])


def test_counts_are_of_all_passes_of_one_shape(snapshot: Snapshot) -> None:
    snapshot.update(tl.trace(Loop(1), X))
    assert "9 NaN of 9 elements, none before" in rows(snapshot, tl.trace(Loop(math.nan), X))[0]


def test_both_dtypes_of_a_parameter_are_said(snapshot: Snapshot) -> None:
    model = nn.Linear(2, 3)
    snapshot.update(tl.trace(model, torch.ones(1, 2)), values=None)
    with torch.autocast("cpu", torch.bfloat16):
        lines = rows(snapshot, tl.trace(model, torch.ones(1, 2)), values=None)
    assert not any("parameter" in line for line in lines), "the parameters are as they were"
    half = rows(snapshot, tl.trace(nn.Linear(2, 3).half(), torch.ones(1, 2).half()), values=None)
    assert [line.split(maxsplit=1)[1] for line in half[:2]] == [
        "dtype float16 instead of float32  <- starts here",
        "dtype float16 instead of float32",
    ]
    wide = nn.Linear(2, 3)
    wide.forward = lambda x: nn.functional.linear(x, wide.weight.float(), wide.bias.float())
    snapshot.update(tl.trace(wide, torch.ones(1, 2)), values=None)
    lines = rows(snapshot, tl.trace(wide.half(), torch.ones(1, 2)), values=None)
    assert any("parameter weight 3x2 float16 instead of 3x2 float32" in line for line in lines), lines


@pytest.mark.parametrize("given_instead", [torch.ones(2), None, nn.ReLU(), "run.tlens"])
def test_what_is_no_trace_is_refused(given_instead: Any, snapshot: Snapshot) -> None:
    trace = tl.trace(torch.relu, X)
    calls = [
        lambda: snapshot.check(given_instead),
        lambda: snapshot.update(given_instead),
        lambda: assert_finite(given_instead),
        lambda: last_ops(given_instead),
        lambda: assert_same_graph(trace, given_instead),
        lambda: assert_same_graph(given_instead, trace),
    ]
    name = type(given_instead).__name__
    for call in calls:
        with pytest.raises(
            InputError, match=f"this takes a trace, not a {name}; give what tl.trace, tl.load or"
        ):
            call()
    assert not snapshot.path.exists()


def test_the_ops_of_a_failed_run_are_told_once() -> None:
    with pytest.raises(RuntimeError, match="size"), tl.capture(nn.ReLU()) as trace:
        torch.exp(X) @ torch.ones(2)
    text = last_ops(trace)
    assert text.count("exp_1:1  ") == 1
    assert "last ops" in text
