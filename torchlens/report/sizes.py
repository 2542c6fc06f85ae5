"""How many elements tensors have, and in what shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchlens._values.geometry import dtype_name
from torchlens._values.geometry import shape_of as geometry_shape
from torchlens.report.amounts import shape_text

if TYPE_CHECKING:
    from torch import Tensor

    from torchlens._values.ghost import Recorded


def numel(tensor: Tensor) -> int | None:
    """Number of elements; None for the parameter of a lazy module that has not run."""
    try:
        return tensor.numel()
    except (RuntimeError, ValueError):
        return None


def shape_of(tensor: Recorded) -> tuple[int, ...] | None:
    """Its shape; None for nested tensors, which have no one shape (a jagged one has a symbol in it)."""
    return None if tensor.is_nested else geometry_shape(tensor)


def look_text(tensor: Recorded) -> str:
    """Its shape and dtype: `3×4 float32`."""
    return f"{shape_text(shape_of(tensor))} {dtype_name(tensor.dtype)}"
