"""Statistics of values, by hand and against torch, and the page that shows them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import torchlens as tl
from tests import models
from tests.programs.reading import floats
from torchlens._values.tally import NoElementsError
from torchlens.report.inspection import inspect
from torchlens.report.statistics import statistics_of
from torchlens.report.text import as_text

HUGE = 1.5e308


def test_by_hand() -> None:
    found = statistics_of(torch.tensor([[0.0, 4.0, math.nan], [math.inf, -math.inf, -2.0]]))
    assert (found.count, found.finite, found.nan, found.zeros) == (6, 3, 1, 1)
    assert (found.positive_infinity, found.negative_infinity) == (1, 1)
    assert (found.minimum, found.maximum, found.mean) == (-2, 4, pytest.approx(2 / 3))
    assert found.std == pytest.approx(math.sqrt(((2 + 2 / 3) ** 2 + (2 / 3) ** 2 + (4 - 2 / 3) ** 2) / 2))
    assert found.quantiles["0.5"] == 0.0
    assert [part.count for part in found.histogram] == [1, 0, 0, 1, 0, 0, 0, 0, 0, 1]


@given(st.lists(st.floats(width=32), max_size=40))
def test_as_torch_has_it(numbers: list[float]) -> None:
    value = torch.tensor(numbers, dtype=torch.float32)
    found, finite = statistics_of(value), value[value.isfinite()].double()
    assert (found.count, found.finite, found.nan) == (len(numbers), finite.numel(), int(value.isnan().sum()))
    assert sum(part.count for part in found.histogram) == finite.numel()
    if not finite.numel():
        assert (found.minimum, found.mean, found.std, found.quantiles) == (None, None, None, {})
        return
    size = float(finite.abs().max())
    assert (found.minimum, found.maximum) == (float(finite.min()), float(finite.max()))
    assert found.mean == pytest.approx(float(finite.mean()), rel=1e-9, abs=1e-9 * size)
    if finite.numel() > 1:
        assert found.std == pytest.approx(float(finite.std()), rel=1e-6, abs=1e-9 * size)
    for probability, at in found.quantiles.items():
        wanted = float(finite.quantile(float(probability)))
        assert at == pytest.approx(wanted, rel=1e-9, abs=1e-9 * size)


@pytest.mark.parametrize(
    ("value", "mean", "counts"),
    [
        pytest.param(torch.tensor([True, False, True, True]), 0.75, [1, 3], id="bool"),
        pytest.param(torch.tensor([3, 5, 5, 7]), 5, [1, 0, 2, 0, 1], id="few integers"),
        pytest.param(torch.tensor([0, 100]), 50, [1, 0, 0, 0, 0, 0, 0, 0, 0, 1], id="many integers"),
        pytest.param(torch.tensor(7, dtype=torch.uint8), 7, [1], id="scalar"),
        pytest.param(torch.full((3,), 2.5, dtype=torch.bfloat16), 2.5, [3], id="constant"),
        pytest.param(torch.tensor([1.0, 3.0]).to(torch.float8_e5m2), 2, [1] + [0] * 8 + [1], id="float8"),
        pytest.param(torch.tensor([HUGE, HUGE / 2, -HUGE], dtype=torch.float64), HUGE / 6, None, id="huge"),
        pytest.param(torch.tensor([5e-324, 0.0], dtype=torch.float64), 0, [1] + [0] * 8 + [1], id="denormal"),
    ],
)
def test_dtypes_and_ranges(value: Tensor, mean: float, counts: list[int] | None) -> None:
    found = statistics_of(value)
    assert found.mean == pytest.approx(mean, rel=1e-12, abs=5e-324)
    assert all(math.isfinite(number) for number in (*found.quantiles.values(), found.std or 0))
    if counts is not None:
        assert [part.count for part in found.histogram] == counts
    assert sum(part.count for part in found.histogram) == value.numel()


def test_complex_and_sparse_values() -> None:
    found = statistics_of(torch.tensor([3 + 4j, 0j]))
    assert (found.of, found.maximum, found.zeros) == ("magnitudes", 5, 1)
    sparse = torch.tensor([[0.0, 2.0], [0.0, 0.0]])
    for value in (sparse.to_sparse(), sparse.to_sparse_csr()):
        found = statistics_of(value)
        assert (found.of, found.count, found.mean) == ("stored elements", 1, 2)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (torch.ones(2, device="meta"), "meta device has no elements"),
        (torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "nested tensor is not looked into"),
    ],
)
def test_values_without_elements(value: Tensor, reason: str) -> None:
    with pytest.raises(NoElementsError, match=reason):
        statistics_of(value)


def test_an_empty_value_has_no_range() -> None:
    found = statistics_of(torch.ones(0, 3))
    assert (found.count, found.minimum, found.histogram) == (0, None, ())


def test_many_elements_are_read_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    value = torch.arange(1000, dtype=torch.float32)
    whole = statistics_of(value)
    monkeypatch.setattr("torchlens._values.tally._PIECE", 7)
    pieces = statistics_of(value)
    assert replace(pieces, mean=0, std=0) == replace(whole, mean=0, std=0)
    assert (pieces.mean, pieces.std) == (pytest.approx(whole.mean), pytest.approx(whole.std))
    monkeypatch.setattr("torchlens.report.statistics._MOST_SORTED", 100)
    assert statistics_of(value).quantiles["0.5"] == pytest.approx(495)  # of every tenth


def test_a_value_that_needs_gradients_is_left_alone() -> None:
    value = torch.ones(3, requires_grad=True)
    statistics_of(value)
    assert value.grad is None and value.requires_grad and value._version == 0


def test_the_page_of_an_op_has_its_histogram() -> None:
    trace = tl.trace(models.Looped(), torch.tensor([[0.0, 0.0, 0.0, 9.0]]))
    text = str(inspect(trace["tanh_1:1"]))
    assert text.startswith("tanh_1:1 · call, pass 1 of 3\n")
    assert "elements   4, 3 zero, 0 NaN, 0 infinite\nrange      0 to 1\n" in text
    last = [line.split() for line in text.splitlines()[-10:]]
    assert last[0][:4] == ["0", "to", "0.1", "3"] and set(last[0][4]) == {"█"}
    assert last[-1][3] == "1" and len(last[-1][4]) < len(last[0][4])
    assert "█" not in as_text(inspect(trace["tanh_1:1"]), encoding="ascii")


def test_the_page_of_a_layer_has_a_row_for_each_pass() -> None:
    page = inspect(tl.trace(models.Looped(), floats(2, 4))["tanh_1"])
    assert [value.label for value in page.ops] == ["tanh_1:1", "tanh_1:2", "tanh_1:3"]
    rows = [line for line in str(page).splitlines() if line.startswith("tanh_1:")]
    assert [len(row.split()) for row in rows] == [7, 7, 7]


def test_a_value_that_is_gone_is_said_to_be() -> None:
    page = inspect(tl.trace(models.Looped(), floats(2, 4), save="tanh_1:2")["tanh_1"])
    assert [value.statistics is None for value in page.ops] == [True, False, True]
    assert "was not kept" in str(page.ops[0].statistics_reason)
    single = inspect(tl.trace(models.Looped(), floats(2, 4), save=[])["tanh_1:1"])
    assert "statistics none: " in str(single)


@pytest.mark.parametrize("width", [40, 60, 100])
def test_no_line_is_wider_than_asked(width: int) -> None:
    trace = tl.trace(models.Looped(), floats(20, 40))
    assert max(map(len, as_text(inspect(trace["tanh_1:2"]), width).splitlines())) <= width
    assert max(map(len, as_text(inspect(trace["tanh_1"]), width).splitlines())) <= width
