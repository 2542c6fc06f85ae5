"""Another value for each dtype: as different as can be, and one the model could have met."""

from __future__ import annotations

import pytest
import torch

from torchlens.validation.perturbation import perturbed

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.complex64)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_numbers_move_by_their_own_size(dtype: torch.dtype) -> None:
    value = torch.linspace(-100, 100, 50).to(dtype)
    moved = perturbed(value)
    assert moved is not None
    assert (moved.dtype, moved.shape) == (dtype, value.shape)
    apart = (moved.to(torch.complex64) - value.to(torch.complex64)).abs()
    assert apart.gt(1).float().mean() > 0.8


def test_indices_stay_among_those_met() -> None:
    moved = perturbed(torch.tensor([[3, 1], [2, 2]]))
    assert moved is not None
    assert moved.tolist() == [[2, 2], [1, 3]]


def test_every_truth_is_turned() -> None:
    moved = perturbed(torch.tensor([True, False]))
    assert moved is not None
    assert moved.tolist() == [False, True]


def test_numbers_that_are_not_finite_are_moved_too() -> None:
    moved = perturbed(torch.tensor([float("nan"), float("inf"), 1.0]))
    assert moved is not None
    assert moved.isfinite().all()


@pytest.mark.parametrize(
    "value",
    [torch.tensor([4, 4]), torch.empty(0), torch.empty(2, device="meta"), torch.eye(2).to_sparse()],
    ids=["equal indices", "no elements", "meta", "sparse"],
)
def test_where_there_is_no_other_value(value: torch.Tensor) -> None:
    assert perturbed(value) is None
