"""How far two values are apart, against hand arithmetic; every dtype; what is not finite."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import torchlens as tl
from torchlens.comparing.differences import Difference, IncomparableError, measure

NAN, INF = math.nan, math.inf


def amounts(found: Difference) -> tuple[int, float, float, float, float]:
    return found.unequal, found.max_abs, found.mean_abs, found.max_rel, found.mean_rel


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        pytest.param([1.0, 2, 4], [1.0, 2, 4], (0, 0, 0, 0, 0), id="equal"),
        pytest.param([1.0, 2, 4, 8], [1.0, 2, 3, 8], (1, 1, 0.25, 0.25, 0.0625), id="one of four"),
        pytest.param([3.0], [-3.0], (1, 6, 6, 2, 2), id="the sign"),
        pytest.param([0.0, 0], [0, 5.0], (1, 5, 2.5, 1, 0.5), id="zero and something"),
        pytest.param([0.0], [-0.0], (1, 0, 0, 0, 0), id="the sign of zero"),
        pytest.param([NAN, 1], [NAN, 1], (0, 0, 0, 0, 0), id="NaN at one place"),
        pytest.param([NAN, 1], [NAN, 3], (1, 2, 1, 2 / 3, 1 / 3), id="NaN in both beside a difference"),
        pytest.param([NAN, 1], [0, 1], (1, INF, INF, INF, INF), id="NaN in one"),
        pytest.param([INF, -INF], [INF, -INF], (0, 0, 0, 0, 0), id="infinities"),
        pytest.param([INF, 1], [INF, 2], (1, 1, 0.5, 0.5, 0.25), id="infinities beside a difference"),
        pytest.param([INF], [-INF], (1, INF, INF, INF, INF), id="infinities of two signs"),
        pytest.param([INF], [1], (1, INF, INF, INF, INF), id="an infinity in one"),
        pytest.param([], [], (0, 0, 0, 0, 0), id="no elements"),
        pytest.param([[1.0], [2]], [[1.0], [4]], (1, 2, 1, 0.5, 0.25), id="two dimensions"),
    ],
)
def test_amounts(a: list[Any], b: list[Any], expected: tuple[float, ...]) -> None:
    found = measure(torch.tensor(a), torch.tensor(b))
    assert amounts(found) == pytest.approx(expected)
    assert amounts(measure(torch.tensor(b), torch.tensor(a))) == amounts(found)
    assert found.equal == (found.unequal == 0)


@pytest.mark.parametrize(
    ("a", "b", "cosine"),
    [
        ([1.0, 0], [0, 1.0], 0),
        ([1.0, 2], [-2.0, -4], -1),
        ([3.0, 4], [4.0, 3], 24 / 25),
        ([0.0, 0], [1.0, 0], None),
        ([0.0], [-0.0], 1),
        ([NAN], [NAN], 1),
        ([NAN], [1], None),
        ([1j], [1.0 + 0j], 0),
    ],
)
def test_cosine(a: list[Any], b: list[Any], cosine: float | None) -> None:
    assert measure(torch.tensor(a), torch.tensor(b)).cosine == pytest.approx(cosine)


FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2]
OTHERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool, torch.uint16]
COMPLEX = [torch.complex32, torch.complex64, torch.complex128]


@pytest.mark.parametrize("dtype", [*FLOATS, *OTHERS, *COMPLEX], ids=str)
def test_every_dtype(dtype: torch.dtype) -> None:
    a, b = torch.tensor([0.0, 1, 1, 0]).to(dtype), torch.tensor([0.0, 1, 0, 0]).to(dtype)
    assert measure(a, a.clone()) == Difference(True, 0, 0, 0, 0, 0, 1)
    assert amounts(measure(a, b)) == (1, 1, 0.25, 1, 0.25)


def test_another_dtype_is_never_equal() -> None:
    a = torch.tensor([1.0, 2.5])
    found = measure(a, a.to(torch.bfloat16))
    assert not found.equal and amounts(found) == (0, 0, 0, 0, 0) and found.cosine == pytest.approx(1)
    third = torch.tensor([1 / 3])
    assert measure(third, third.to(torch.bfloat16)).max_abs == abs(float(third) - float(third.bfloat16()))


def test_integers_beyond_a_double_are_told_apart() -> None:
    found = measure(torch.tensor([2**53]), torch.tensor([2**53 + 1]))
    assert (found.equal, found.unequal, found.max_abs) == (False, 1, 0)


@pytest.mark.parametrize("payload", [0x7FC00001, 0xFFC00000 - (1 << 32)])
def test_any_two_nans_are_equal(payload: int) -> None:
    other = torch.tensor([payload], dtype=torch.int32).view(torch.float32)
    assert other.isnan().all()
    assert measure(torch.tensor([NAN]), other).equal


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(torch.tensor([[0.0, 1], [2, 0]]).to_sparse(), id="sparse"),
        pytest.param(torch.tensor([[0.0, 1], [2, 0]]).to_sparse_csr(), id="sparse csr"),
        pytest.param(
            torch.quantize_per_tensor(torch.tensor([[0.0, 1], [2, 0]]), 1.0, 0, torch.quint8), id="int8"
        ),
        pytest.param(torch.tensor([[0.0, 2], [1, 0]]).T, id="transposed"),
        pytest.param(torch.tensor([[0.0, 1], [2, 0]], requires_grad=True), id="with a gradient"),
    ],
)
def test_values_that_are_not_plain(value: Tensor) -> None:
    assert measure(value, value).equal
    assert measure(value, torch.tensor([[0.0, 1], [2, 4]])).max_abs == 4


def test_a_conjugated_view() -> None:
    value = torch.tensor([1 + 2j])
    assert measure(value.conj(), torch.tensor([1 - 2j])).equal
    assert measure(value.conj(), value).max_abs == 4


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        pytest.param(torch.zeros(2, 3), torch.zeros(3, 2), "shapes differ: 2×3 and 3×2", id="shapes"),
        pytest.param(torch.zeros(2, device="meta"), torch.zeros(2), "meta has no elements", id="meta"),
        pytest.param(*[torch.nested.nested_tensor([torch.zeros(2)])] * 2, "nested", id="nested"),
    ],
)
def test_what_cannot_be_compared(a: Tensor, b: Tensor, reason: str) -> None:
    with pytest.raises(IncomparableError, match=reason):
        measure(a, b)


@given(
    values=st.lists(st.tuples(st.floats(width=32), st.floats(width=32)), max_size=20),
    repeats=st.sampled_from([1, 40_000]),
)
def test_a_value_in_pieces_is_as_one(values: list[tuple[float, float]], repeats: int) -> None:
    """The mirror image is the same; a value is as far from another as any of its pieces is at most."""
    a, b = (torch.tensor([pair[at] for pair in values]).repeat(repeats) for at in (0, 1))
    found = measure(a, b)
    mirrored = measure(b, a)
    assert (found.equal, *amounts(found)) == (mirrored.equal, *amounts(mirrored))
    by_hand = [
        0 if one == other or (one != one and other != other) else abs(one - other) for one, other in values
    ]
    most = max((INF if apart != apart else apart for apart in by_hand), default=0)
    assert found.max_abs == most
    assert 0 <= found.mean_abs <= found.max_abs * 1.000001 and 0 <= found.mean_rel <= found.max_rel * 1.000001
    assert found.max_rel <= 2 or found.max_rel == INF
    bits = [
        (x != y and not (x != x and y != y)) or math.copysign(1, x) != math.copysign(1, y) for x, y in values
    ]
    assert found.unequal <= sum(bits) * repeats


def test_a_sparse_value_too_large_to_be_dense() -> None:
    wide = torch.sparse_coo_tensor([[0], [1]], [1.0], (200_000, 200_000))
    with pytest.raises(IncomparableError, match="40,000,000,000 elements are too many"):
        measure(wide, wide * 2)
    trace = tl.trace(lambda x: x * 2, wide)
    found = tl.Bundle({"a": trace, "b": trace}).compare("a", "b")
    assert len(list(found)) == 3 and not found.equal


@pytest.mark.parametrize("name", ["float4_e2m1fn_x2", "float8_e4m3fn", "float8_e8m0fnu"])
def test_values_of_few_bits_are_compared_or_say_why_not(name: str) -> None:
    if not hasattr(torch, name):
        pytest.skip(f"this torch has no {name}")
    x = torch.tensor([1, 2, 3], dtype=torch.uint8).view(getattr(torch, name))
    trace = tl.trace(lambda x: x.clone(), x)
    bundle = tl.Bundle({"a": trace, "b": trace})
    assert len(list(bundle.compare("a", "b"))) == 3
    assert not bundle.first_divergence("a", "b")
