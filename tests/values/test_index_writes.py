"""What a write into `y[index]` overwrote is kept, whatever kind of index it was."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import torchlens as tl

INDICES: dict[str, Any] = {
    "an int": 1,
    "a numpy integer": np.int64(1),
    "a tensor of no dimension": torch.tensor(1),
    "a slice and a tensor of no dimension": (slice(None), torch.tensor(1)),
    "a list": [0, 1],
    "an index tensor": torch.tensor([1, 0]),
    "a bool mask": torch.tensor([True, False, True]),
    "a numpy array": np.array([0, 2]),
    "None and a slice": (None, slice(0, 2)),
    "an ellipsis": (..., 1),
}


@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)
def test_the_older_value_is_rebuilt(index: Any) -> None:
    def run(x: Tensor) -> Tensor:
        y = x + 0
        y[index] = 5.0
        return y

    x = torch.arange(9.0).reshape(3, 3)
    trace = tl.trace(run, x)
    assert torch.equal(trace["add_1"].out, x)
    assert torch.equal(trace["setitem_1"].out, trace.output)
    assert not torch.equal(trace.output, x)


def test_an_index_out_of_range_is_refused_by_torch_itself() -> None:
    def run(x: Tensor) -> Tensor:
        y = x + 0
        with pytest.raises(IndexError, match="out of bounds"):
            y[10] = 1
        return y

    trace = tl.trace(run, torch.ones(3))
    assert torch.equal(trace["add_1"].out, torch.ones(3))
