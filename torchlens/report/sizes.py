"""How many elements and bytes tensors have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchlens._values.geometry import shape_of as geometry_shape

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
