"""Equality of bits, and what is said where there is none."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from torchlens.validation.comparison import difference, is_close, is_same

NAN = float("nan")


def quantized(zero_point: int) -> Tensor:
    return torch.quantize_per_tensor(torch.ones(2), 0.1, zero_point, torch.qint8)


@pytest.mark.parametrize(
    ("one", "other", "text"),
    [
        (torch.ones(2), torch.ones(2, dtype=torch.float64), "dtype torch.float64 instead of torch.float32"),
        (torch.ones(2), torch.ones(1, 2), "shape (1, 2) instead of (2,)"),
        (torch.ones(2), torch.ones(2).to_sparse(), "layout torch.sparse_coo instead of torch.strided"),
        (torch.ones(2), torch.ones(2, device="meta"), "device meta instead of cpu"),
        (torch.ones(3), torch.tensor([1, 1.5, 3]), "2 of 3 elements differ, by up to 2"),
        (torch.ones(3), torch.tensor([1, NAN, 3]), "2 of 3 elements differ, NaN among them"),
        (torch.tensor([0.0]), torch.tensor([-0.0]), "the bits of zeros or NaNs differ"),
        (torch.tensor([True]), torch.tensor([False]), "1 of 1 elements differ, by up to 1"),
        (torch.tensor([1j]), torch.tensor([2j]), "1 of 1 elements differ, by up to 1"),
        (torch.eye(2).to_sparse(), torch.ones(2, 2).to_sparse(), "8 stored elements instead of 4"),
        (quantized(0), quantized(3), "2 of 2 elements differ, by up to 3"),
    ],
)
def test_what_sets_two_tensors_apart(one: Tensor, other: Tensor, text: str) -> None:
    assert difference(one, other) == text
    assert not is_same(one, other)


@pytest.mark.parametrize(
    "value",
    [
        torch.tensor([NAN, float("inf")]),
        torch.tensor(3),
        torch.empty(0, 3),
        torch.randn(4, 4).t()[1:],
        torch.randn(3, dtype=torch.complex64).conj(),
        torch.randn(3, dtype=torch.complex64).conj().imag,
        torch.randn(3).to(torch.bfloat16),
        torch.randn(3).to(torch.float8_e4m3fn),
        torch.eye(3).to_sparse_csr(),
        torch.eye(3).to_sparse_csc(),
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        quantized(0),
        torch.quantize_per_channel(
            torch.ones(2), torch.ones(2), torch.zeros(2, dtype=torch.long), 0, torch.qint8
        ),
        torch.ones(3)[1:2].expand(4),
        torch.ones(3, 4)[:1, 1],
    ],
)
def test_a_tensor_is_the_same_as_its_copy(value: Tensor) -> None:
    assert difference(value, value.clone()) is None
    assert is_same(value.clone(), value)


def test_rounding_is_close_and_a_hundredth_is_not() -> None:
    assert is_close(torch.ones(3), torch.ones(3) + 1e-6)
    assert not is_close(torch.ones(3), torch.ones(3) + 1e-2)
    assert is_close(torch.ones(3, dtype=torch.bfloat16), torch.ones(3, dtype=torch.bfloat16) + 1e-2)
