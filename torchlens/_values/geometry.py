"""Where a tensor lies: its storage, and the elements of it that the tensor covers."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from torchlens._values.ghost import Ghost, Look, Recorded, StorageKey
from torchlens._values.region import Region


def storage_key(tensor: Recorded) -> StorageKey:
    """What names the storage of a tensor while both are alive."""
    if isinstance(tensor, Ghost):
        return tensor.key
    try:
        return tensor.untyped_storage()._cdata
    except (RuntimeError, NotImplementedError, ValueError):
        # sparse and nested tensors have none, nor have parameters that a lazy module will fill
        return -id(tensor)


def region_of(tensor: Recorded) -> Region:
    """The elements of its storage that the tensor covers now."""
    if isinstance(tensor, Ghost):
        return tensor.look.region
    if tensor.layout is not torch.strided or (type(tensor) is not Tensor and is_wrapper(tensor)):
        return Region(0, (1,), (1,), 1)
    if tensor.is_nested:
        return Region(0, (tensor.untyped_storage().nbytes(),), (1,), 1)
    try:
        offset = cast("int", tensor.storage_offset())
        return Region(offset, tuple(tensor.shape), tensor.stride(), tensor.element_size())
    except (RuntimeError, NotImplementedError, ValueError):
        return Region(0, (1,), (1,), 1)


def is_wrapper(tensor: Tensor) -> bool:
    """Whether a class with a `__torch_dispatch__` of its own stands between the tensor and its elements."""
    kind: Any = type(tensor)
    return kind.__torch_dispatch__ is not _PLAIN_DISPATCH


_PLAIN_DISPATCH = cast("Any", Tensor).__torch_dispatch__


def flat_span(tensor: Tensor) -> Tensor:
    """A flat view of the storage from the first to the last element of the tensor."""
    if tensor.is_nested:
        return octets_of(tensor)
    region = region_of(tensor)
    first, past = (byte // region.itemsize for byte in region.span)
    view = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return view.set_(tensor.untyped_storage(), first, (past - first,), (1,))


def octets_of(tensor: Tensor) -> Tensor:
    """The bytes from the first to the last element of the tensor; of a nested one, of its whole storage."""
    first, past = region_of(tensor).span
    view = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return view.set_(tensor.untyped_storage(), first, (past - first,), (1,))


def flat_storage(tensor: Tensor) -> Tensor:
    """The bytes of the tensor's whole storage."""
    storage = tensor.untyped_storage()
    view = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return view.set_(storage, 0, (storage.nbytes(),), (1,))


def same_geometry(one: Recorded, other: Recorded) -> bool:
    """Whether two tensors cover the same elements of a storage in the same order."""
    return storage_key(one) == storage_key(other) and region_of(one) == region_of(other)


def bytes_of(tensor: Recorded) -> int:
    """Bytes of the tensor's elements; of a sparse tensor, of the values and indices it holds."""
    if isinstance(tensor, Ghost):
        return tensor.look.nbytes
    if tensor.layout not in _SPARSE or tensor.is_nested:
        return tensor.numel() * tensor.element_size()
    return sum(getattr(tensor, name)().nbytes for name in _SPARSE[tensor.layout])


_SPARSE = {
    torch.sparse_coo: ("_values", "_indices"),
    torch.sparse_csr: ("values", "crow_indices", "col_indices"),
    torch.sparse_bsr: ("values", "crow_indices", "col_indices"),
    torch.sparse_csc: ("values", "ccol_indices", "row_indices"),
    torch.sparse_bsc: ("values", "ccol_indices", "row_indices"),
}


def dtype_name(dtype: torch.dtype) -> str:
    """`float32` for `torch.float32`."""
    return str(dtype).removeprefix("torch.")


def shape_of(tensor: Recorded) -> tuple[int, ...]:
    """The size of each dimension; -1 where the parts of a nested tensor differ."""
    if isinstance(tensor, Ghost):
        return tensor.look.shape
    if not tensor.is_nested:
        return tuple(tensor.shape)
    return tuple(_size_of(tensor, dim) for dim in range(tensor.dim()))


def _size_of(nested: Tensor, dim: int) -> int:
    try:
        size: object = nested.size(dim)
    except RuntimeError:
        return -1
    return size if type(size) is int else -1  # a jagged one has a symbol there


class Looks:
    """What the tensors of one capture look like, each look once."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], Look] = {}

    def of(self, tensor: Tensor) -> Look:
        """What a tensor is apart from its elements. Must not be seen by a mode or subclass."""
        if type(tensor) not in _PLAIN:
            return _look(tensor)
        try:
            key = (
                tensor.shape, tensor.stride(), tensor.storage_offset(),
                tensor.dtype, tensor.device, tensor.requires_grad,
            )  # fmt: skip
        except (RuntimeError, NotImplementedError):  # sparse and nested tensors have no strides
            return _look(tensor)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = _look(tensor)
        return found


_PLAIN = (Tensor, torch.nn.Parameter)


def _look(tensor: Tensor) -> Look:
    return Look(
        shape_of(tensor),
        region_of(tensor),
        tensor.dtype,
        tensor.device,
        tensor.layout,
        bytes_of(tensor),
        tensor.requires_grad,
        tensor.is_nested,
    )
