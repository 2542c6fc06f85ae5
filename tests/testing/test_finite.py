"""The first op with a NaN or an infinity, and whether it made it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests.programs.examples import EXAMPLES
from torchlens.errors import InputError, MissingKeyError, TraceAssertionError
from torchlens.testing import assert_finite

NAN, INF = float("nan"), float("inf")
X = torch.tensor([0.0, 1.0, 4.0])
INFINITE = torch.tensor([INF])


def complaint(run: Callable[..., Any], *inputs: Tensor, **options: Any) -> list[str]:
    allowed = {name: options.pop(name) for name in ("allow", "inf") if name in options}
    trace = tl.trace(run, inputs or (X,), **options)
    with pytest.raises(TraceAssertionError, match=r"finite|looked at") as caught:
        assert_finite(trace, **allowed)
    return str(caught.value).splitlines()


class Biased(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.linear.bias.data[0] = NAN
        self.register_buffer("scale", torch.tensor([1.0, INF]))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.linear(x)[:1]


def in_place(x: Tensor) -> Tensor:
    y = x * 1
    return y.log_()


def through_numpy(x: Tensor) -> Tensor:
    return torch.from_numpy((x / 0).numpy()) * 2


FIRST: dict[str, tuple[Callable[..., Any], list[str]]] = {
    "made": (
        lambda x: (x + 1) / (x - 1),
        [
            "truediv_1:1 makes what is not finite from finite inputs: 1 inf among 3 elements",
            "reads add_1:1: finite",
        ],
    ),
    "both": (
        lambda x: x.sub(1).sqrt().div(0),
        ["sqrt_1:1 makes what is not finite from finite inputs: 1 NaN among 3 elements"],
    ),
    "a parameter": (
        Biased(),
        [
            "linear_1:1 is not finite, and what it read was so already: 1 NaN among 2 elements",
            "reads input_1:1: finite",
            "reads linear.weight: finite",
            "reads linear.bias: 1 NaN among 2 elements",
        ],
    ),
    "a source": (
        lambda x: x * INFINITE,
        ["source_1:1, where the data comes from, is not finite: 1 inf among 1 element"],
    ),
    "in place": (in_place, ["log_1:1 makes what is not finite from finite inputs: 1 inf among 3 elements"]),
    "complex": (
        lambda x: torch.complex(x, x) / 0,
        ["truediv_1:1 makes what is not finite from finite inputs: 1 NaN and 2 inf among 3 elements"],
    ),
    "sparse": (
        lambda x: x.to_sparse() / 0,
        ["truediv_1:1 makes what is not finite from finite inputs: 2 inf among 2 elements"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FIRST)
def test_the_first_op_is_named(name: str) -> None:
    run, expected = FIRST[name]
    lines = [line.strip() for line in complaint(run)]
    assert lines[0] == expected[0]
    assert set(expected) <= set(lines)


def test_an_input_is_where_it_comes_from() -> None:
    first = complaint(torch.relu, torch.tensor([NAN, INF]))[0]
    assert first == "input_1:1, where the data comes from, is not finite: 1 NaN and 1 inf among 2 elements"


def test_what_is_said_of_an_op() -> None:
    lines = complaint(nn.Sequential(nn.Linear(3, 3), nn.LogSigmoid()), X * INF, allow="input_1")
    assert lines[0].startswith("linear_1:1 is not finite, and what it read was so already: ")
    assert lines[2] == "  linear_1:1  linear, 3 float32, in 0"
    assert lines[3].startswith("    called at linear.py:")
    assert lines[-2:] == [
        "before it: 0 ops looked at and finite, 1 left out",
        "allow= leaves ops out, by label, address or selector; inf=True allows infinities",
    ]


def masked(x: Tensor) -> Tensor:
    scores = x.masked_fill(x > 2, -INF)
    return torch.softmax(scores, 0).log()


def test_a_mask_may_be_infinite() -> None:
    assert complaint(masked)[0].startswith("masked_fill_1:1 makes")
    for allow in ("masked_fill_1", tl.func("masked_fill"), ["masked_fill_1:1"]):
        assert complaint(masked, allow=allow)[0].startswith("log_1:1 makes"), "softmax of -inf is 0"
    assert str(assert_finite(tl.trace(masked, X), inf=True)) == "6 ops looked at and finite"
    lines = complaint(masked, torch.tensor([3.0, 3.0]), inf=True)
    assert lines[0] == "softmax_1:1 makes NaN from inputs without any: 2 NaN among 2 elements"
    assert "    reads masked_fill_1:1: 2 inf among 2 elements" in lines
    with pytest.raises(MissingKeyError, match="masked_1"):
        assert_finite(tl.trace(masked, X), allow="masked_1")
    with pytest.raises(InputError, match="sites"):
        assert_finite(tl.trace(masked, X), allow=3)


def test_ops_that_are_not_kept_are_counted() -> None:
    found = assert_finite(tl.trace(lambda x: torch.exp(x) + 1, X, save="exp_1"))
    assert (found.checked, found.unread) == (2, ["input_1:1", "add_1:1"])
    assert (
        str(found)
        == "2 ops looked at and finite, 2 not looked at, their values being gone: input_1:1, add_1:1"
    )


def test_what_it_read_may_not_be_known() -> None:
    lines = complaint(lambda x: torch.log(torch.abs(x)), save="log_1")
    assert lines[0] == "log_1:1 is not finite, and not all that it read is known: 1 inf among 3 elements"
    assert "    reads abs_1:1: its value can not be read" in lines


def test_nothing_to_look_at_is_no_success() -> None:
    lines = complaint(lambda x: x + 1, torch.ones(2, device="meta"))
    assert lines[0].startswith("nothing of the trace could be looked at: 0 ops looked at and finite, 3 not")
    assert lines[0].endswith("their values being gone: input_1:1, add_1:1, output_1:1")


def test_data_that_came_through_the_host() -> None:
    lines = complaint(through_numpy, allow="truediv_1")
    assert "    reads truediv_1:1: 1 NaN and 2 inf among 3 elements" in lines


def test_a_block_that_raised() -> None:
    with pytest.raises(RuntimeError, match="inconsistent"), tl.capture(nn.ReLU()) as trace:
        (X / 0) @ torch.ones(2)
    with pytest.raises(TraceAssertionError, match="truediv_1:1 makes"):
        assert_finite(trace)


@pytest.mark.parametrize("name", EXAMPLES)
def test_against_looking_at_each_value(name: str) -> None:
    example = EXAMPLES[name]
    torch.manual_seed(0)
    trace = tl.trace(example.build(), example.inputs(), input_kwargs=example.kwargs())
    found = assert_finite(trace, allow=tl.func("empty"))
    assert found.checked + found.allowed + len(found.unread) == len(trace.ops)
    assert found.unread == []


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz"])
def test_values_of_eight_bits(name: str) -> None:
    x = torch.tensor([1.0, float("nan")]).to(getattr(torch, name))
    assert assert_finite(tl.trace(lambda x: x.clone(), x[:1])) is not None
    with pytest.raises(TraceAssertionError, match="NaN"):
        assert_finite(tl.trace(lambda x: x.clone(), x))
