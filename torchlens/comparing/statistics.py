"""What a value looks like in a few numbers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torchlens.comparing.differences import IncomparableError, numbers_of
from torchlens.report.amounts import shape_text
from torchlens.report.sizes import shape_of


@dataclass(frozen=True, slots=True)
class Statistics:
    """A value's shape, dtype and amounts; of complex values those of their absolute values."""

    shape: tuple[int, ...] | None
    dtype: str
    min: float | None
    """Of the finite elements, as are `max`, `mean` and `std`; None where there are none."""
    max: float | None
    mean: float | None
    std: float | None
    """The root of the mean squared distance from the mean, divided by the count and not one less."""
    nans: int
    infs: int

    def __str__(self) -> str:
        text = f"{shape_text(self.shape)} {self.dtype}"
        named = (("min", self.min), ("max", self.max), ("mean", self.mean), ("std", self.std))
        text += "".join(f", {name} {value:.4g}" for name, value in named if value is not None)
        text += f", {self.nans:,} NaN" if self.nans else ""
        return text + (f", {self.infs:,} Inf" if self.infs else "")


def summarize_value(value: Tensor) -> Statistics:
    """The statistics of a value; without amounts where it has no elements that torch computes with."""
    shape, dtype = shape_of(value), str(value.dtype).removeprefix("torch.")
    try:
        numbers = numbers_of(value)
    except IncomparableError:
        return Statistics(shape, dtype, None, None, None, None, 0, 0)
    nans, infs = int(numbers.isnan().sum()), int(numbers.isinf().sum())
    finite = numbers[numbers.isfinite()] if nans or infs else numbers
    if not finite.numel():
        return Statistics(shape, dtype, None, None, None, None, nans, infs)
    low, high = torch.aminmax(finite)
    std, mean = torch.std_mean(finite, correction=0)
    return Statistics(shape, dtype, float(low), float(high), float(mean), float(std), nans, infs)
