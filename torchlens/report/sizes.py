"""How many elements and bytes tensors have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchlens._trace.reader import TraceReader
from torchlens._values.geometry import shape_of as geometry_shape
from torchlens._values.geometry import storage_key

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


def storage_bytes(reader: TraceReader) -> dict[int, int]:
    """Bytes of each storage that kept values lie in; not those of parameters and of the meta device."""
    params = {storage_key(entry.tensor) for entry in reader.record.params if numel(entry.tensor) is not None}
    sizes: dict[int, int] = {}
    for row, slot in zip(reader.numbers.rows, reader.numbers.slots, strict=True):
        seen = reader.values.held(reader.tensor(row, slot), row)
        if seen is None:
            continue
        key = storage_key(seen)
        if key not in sizes and key not in params and not seen.is_meta:
            sizes[key] = seen.untyped_storage().nbytes() if key >= 0 else _parts_bytes(seen)
    return sizes


def _parts_bytes(tensor: Tensor) -> int:
    """Bytes of a tensor that has no storage of its own."""
    names = {
        "torch.sparse_coo": ("_values", "_indices"),
        "torch.sparse_csr": ("values", "crow_indices", "col_indices"),
        "torch.sparse_bsr": ("values", "crow_indices", "col_indices"),
        "torch.sparse_csc": ("values", "ccol_indices", "row_indices"),
        "torch.sparse_bsc": ("values", "ccol_indices", "row_indices"),
    }.get(str(tensor.layout))
    if names is None:
        return tensor.numel() * tensor.element_size()
    return sum(getattr(tensor, name)().nbytes for name in names)
