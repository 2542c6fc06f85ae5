"""Counts and moments of elements, whatever pieces they come in, against exact arithmetic over all of them."""

from __future__ import annotations

import math
from statistics import mean, pstdev

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from torchlens._values.tally import NoElementsError, Tally, elements_of

INF, NAN = math.inf, math.nan
LARGEST = torch.finfo(torch.float64).max
NUMBERS = st.floats(-1e100, 1e100) | st.sampled_from([NAN, INF, -INF, 0.0, -0.0, 5e-324, 1e-200])
ODD = [NAN, INF, -INF, 0.0, 3.0]
DTYPES = [
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2),
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool, torch.uint16),
    *(torch.complex32, torch.complex64, torch.complex128),
]


def tally(*tensors: Tensor) -> Tally:
    found = Tally()
    for tensor in tensors:
        found.add(elements_of(tensor)[0])
    return found


def counts(found: Tally) -> tuple[int, ...]:
    return (
        found.count, found.nan, found.positive_infinity, found.negative_infinity, found.zeros, found.finite
    )  # fmt: skip


@given(st.lists(st.lists(NUMBERS, max_size=6), max_size=5))
def test_pieces_are_as_one(pieces: list[list[float]]) -> None:
    found = tally(*(torch.tensor(piece, dtype=torch.float64) for piece in pieces))
    every = np.array([number for piece in pieces for number in piece])
    finite = every[np.isfinite(every)]
    assert counts(found) == (
        every.size, np.isnan(every).sum(), (every == INF).sum(), (every == -INF).sum(), (every == 0).sum(),
        finite.size,
    )  # fmt: skip
    if finite.size:
        size = float(np.abs(finite).max())
        assert (found.low, found.high) == (finite.min(), finite.max())
        assert found.mean == pytest.approx(mean(map(float, finite)), rel=1e-9, abs=1e-12 * size + 1e-323)
        assert found.spread == pytest.approx(pstdev(map(float, finite)), rel=1e-6, abs=1e-9 * size + 1e-323)
    assert (found.std is None) == (finite.size < 2)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype(dtype: torch.dtype) -> None:
    found = tally(torch.tensor([0.0, 1, 1, 0]).to(dtype))
    assert counts(found) == (4, 0, 0, 0, 2, 4)
    assert (found.low, found.high, found.mean, found.spread) == (0, 1, 0.5, 0.5)


def test_an_element_of_complex_parts_counts_once() -> None:
    found = tally(torch.tensor([complex(one, other) for one in ODD for other in ODD]))
    assert counts(found) == (25, 9, 12, 0, 1, 4)
    assert (found.low, found.high, found.mean) == (0, pytest.approx(math.hypot(3, 3)), pytest.approx(2.56066))


def test_numbers_at_the_end_of_float64() -> None:
    found = tally(*(torch.full((size,), LARGEST, dtype=torch.float64) for size in (2, 3)))
    assert (found.mean, found.spread) == (LARGEST, 0)
    found = tally(torch.tensor([complex(LARGEST, LARGEST), 0j], dtype=torch.complex128))
    assert counts(found) == (2, 0, 0, 0, 1, 2), "both are finite, whatever the magnitude"
    found = tally(*(torch.tensor([number], dtype=torch.float64) for number in (LARGEST, -LARGEST)))
    assert (found.mean, found.spread) == (0, LARGEST)


def test_a_constant_has_no_spread() -> None:
    found = tally(*(torch.full((size,), 0.1, dtype=torch.float64) for size in (1, 2, 3, 1000)))
    assert (found.mean, found.spread) == (0.1, 0)


def test_elements_that_torch_does_not_compute_with_are_no_elements() -> None:
    with pytest.raises(NoElementsError, match="meta device has no elements"):
        elements_of(torch.ones(2, device="meta"))
    _, of = elements_of(torch.tensor([0, 1j]).to_sparse())
    assert of == "stored magnitudes"
