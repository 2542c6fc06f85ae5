"""`--input 1,3,224,224`: what a text says about a tensor."""

from __future__ import annotations

import pytest
import torch

from torchlens.cli.inputs import InputSpec, random_tensor
from torchlens.errors import TargetError


@pytest.mark.parametrize(
    ("text", "shape", "dtype"),
    [
        ("3,4", (3, 4), torch.float32),
        ("3", (3,), torch.float32),
        ("()", (), torch.float32),
        ("0,4", (0, 4), torch.float32),
        ("2,2:bfloat16", (2, 2), torch.bfloat16),
        ("2:float8_e5m2", (2,), torch.float8_e5m2),
        ("2:complex64", (2,), torch.complex64),
        ("2:bool", (2,), torch.bool),
        ("2:long", (2,), torch.int64),
        ("name=2:int32:-3..3", (2,), torch.int32),
    ],
)
def test_random_tensors(text: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    tensor = random_tensor(InputSpec.parse(text), torch.device("cpu"))
    assert (tuple(tensor.shape), tensor.dtype) == (shape, dtype)


def test_integers_cover_their_range() -> None:
    tensor = random_tensor(InputSpec.parse("1000:int64:-2..3"), torch.device("cpu"))
    assert tensor.unique().tolist() == [-2, -1, 0, 1, 2]


@pytest.mark.parametrize("text", ["", "3;4", "1=3", "a=b=3", "3:int64:0..", "3:int64:a..b", "3 4"])
def test_bad_texts(text: str) -> None:
    with pytest.raises(TargetError, match="input "):
        InputSpec.parse(text)
