"""Statistics of a layer's passes, against numpy over all of their elements."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchlens.errors import OptionError
from torchlens.testing.statistics import Tolerance, difference_of, statistic_texts

NUMBERS = st.floats(-1e6, 1e6, allow_subnormal=False) | st.sampled_from([float("nan"), float("inf"), 0.0])
PASSES = st.lists(st.lists(NUMBERS, max_size=5), min_size=1, max_size=5)


@given(PASSES)
def test_passes_are_taken_together(passes: list[list[float]]) -> None:
    found = statistic_texts(torch.tensor(numbers, dtype=torch.float64) for numbers in passes)
    together = np.array([number for numbers in passes for number in numbers])
    finite = together[np.isfinite(together)]
    assert int(found.get("nan", 0)) == np.isnan(together).sum()
    assert int(found.get("inf", 0)) == np.isinf(together).sum()
    assert ("min" in found) == bool(finite.size)
    if finite.size:
        size = np.abs(finite).max() or 1.0  # by which numpy's squares are kept in the range of float64
        noise = 2e-6 * size
        for name, expected in (
            ("min", finite.min()),
            ("max", finite.max()),
            ("mean", finite.mean()),
            ("std", (finite / size).std() * size),
            ("norm", np.linalg.norm(finite / size) * size),
        ):
            assert float(found[name]) == pytest.approx(expected, rel=6e-6, abs=noise), name


@given(PASSES, st.permutations(range(5)))
def test_the_order_of_passes_changes_no_digit_that_counts(
    passes: list[list[float]], order: list[int]
) -> None:
    tensors = [torch.tensor(numbers, dtype=torch.float64) for numbers in passes]
    one = statistic_texts(tensors)
    other = statistic_texts(tensors[at] for at in order if at < len(tensors))
    assert difference_of(one, other, ["float64"], Tolerance(rtol=3e-6)) is None


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([torch.tensor([3, -4])], {"min": "-4", "max": "3", "sum": "-1"}),
        ([torch.tensor([250], dtype=torch.uint8)], {"min": "250", "max": "250", "sum": "250"}),
        ([torch.tensor([True, False]), torch.tensor([True])], {"true": "2/3"}),
        ([torch.tensor([True]), None], {"true": "1/1", "kept": "1/2"}),
        ([None, None], {"kept": "0/2"}),
        ([torch.empty(0, 3)], {"elements": "0"}),
        ([torch.empty(0, dtype=torch.int64)], {"elements": "0"}),
        (
            [torch.tensor([3 - 4j])],
            {"min": "-4", "max": "3", "mean": "-0.5", "std": "3.5", "norm": "5"},
        ),
        ([torch.tensor([float("nan")])], {"nan": "1"}),
        ([torch.tensor([-0.0])], {"min": "0", "max": "0", "mean": "0", "std": "0", "norm": "0"}),
        (
            [torch.tensor([0.0, 2.0]).to_sparse()],
            {"min": "2", "max": "2", "mean": "2", "std": "0", "norm": "2", "sum": "1"},
        ),
        (
            [torch.tensor([1.0, 2.0], dtype=torch.bfloat16)],
            {"min": "1", "max": "2", "mean": "1.5", "std": "0.5", "norm": "2.23607"},
        ),
    ],
)
def test_statistics_of(values: list[torch.Tensor | None], expected: dict[str, str]) -> None:
    assert statistic_texts(values) == expected


@pytest.mark.parametrize(
    ("dtype", "factor", "is_found"),
    [
        ("float32", 1 + 5e-5, False),
        ("float32", 1 + 2e-4, True),
        ("float64", 1 + 5e-5, True),
        ("bfloat16", 1.02, False),
        ("float16", 1.02, True),
        ("float8_e4m3fn", 1.05, False),
        ("int64", 1.02, True),
    ],
)
def test_the_tolerance_follows_the_dtype(dtype: str, factor: float, is_found: bool) -> None:
    expected = {"min": "-100", "max": "100", "mean": "0"}
    found = {"min": f"{-100 * factor}", "max": f"{100 * factor}", "mean": "0"}
    assert (difference_of(expected, found, [dtype], Tolerance()) is not None) == is_found
    mixed = difference_of(expected, found, [dtype, "float8_e5m2"], Tolerance())
    assert mixed is None, "the coarsest dtype of the passes decides"


def test_the_furthest_comes_first() -> None:
    expected = {"min": "0", "max": "100", "mean": "50", "norm": "200"}
    found = {"min": "0", "max": "101", "mean": "55", "norm": "200", "nan": "2"}
    assert difference_of(expected, found, ["float32"], Tolerance()) == "nan 2 instead of none; mean, max too"
    del found["nan"]
    text = "mean 55 instead of 50, tolerance 0.01; max too"
    assert difference_of(expected, found, ["float32"], Tolerance()) == text
    assert difference_of(expected, found, ["float32"], Tolerance(atol=5)) is None


@pytest.mark.parametrize("number", [-1e-3, float("nan"), float("inf")])
def test_what_is_no_tolerance(number: float) -> None:
    with pytest.raises(OptionError, match=f"atol={number} is no tolerance"):
        Tolerance(atol=number)
