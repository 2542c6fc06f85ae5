"""Tensors that are more than a storage seen through sizes and strides: quantized, nested and sparse ones.

A file describes one by its sort and by what it consists of: numbers, and other tensors by their number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import torch
from torch import Tensor
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from torchlens._files.sealed import Fields, Json
from torchlens._values.geometry import is_wrapper
from torchlens._values.ghost import Look
from torchlens.saving.checks import as_integer

PartNumber = Callable[[Tensor], int]
PartOf = Callable[[int], Tensor]

_PER_TENSOR: Final = (torch.per_tensor_affine, torch.per_tensor_symmetric)
_PER_CHANNEL: Final = (torch.per_channel_affine, torch.per_channel_symmetric)
_BY_ROWS: Final = (torch.sparse_csr, torch.sparse_bsr)
_BY_COLUMNS: Final = (torch.sparse_csc, torch.sparse_bsc)
_BY_BLOCKS: Final = (torch.sparse_bsr, torch.sparse_bsc)


def describe(tensor: Tensor, number: PartNumber) -> Json | None:
    """What a composite tensor consists of; None for any other."""
    if type(tensor) is not Tensor and is_wrapper(tensor):
        return None
    if tensor.is_nested:
        return _nested(tensor, number) if tensor.layout is torch.strided else None
    if tensor.is_quantized:
        return _quantized(tensor, number)
    if tensor.layout is torch.sparse_coo:
        parts = number(tensor._indices()), number(tensor._values())
        return {"sparse": list(parts), "is_coalesced": tensor.is_coalesced()}
    if tensor.layout in _BY_ROWS:
        return {"compressed": [*map(number, (tensor.crow_indices(), tensor.col_indices(), tensor.values()))]}
    if tensor.layout in _BY_COLUMNS:
        return {"compressed": [*map(number, (tensor.ccol_indices(), tensor.row_indices(), tensor.values()))]}
    return None


def _quantized(tensor: Tensor, number: PartNumber) -> Json | None:
    if tensor.qscheme() in _PER_TENSOR:
        return {"scale": repr(tensor.q_scale()), "zero_point": tensor.q_zero_point()}
    if tensor.qscheme() not in _PER_CHANNEL:
        return None
    parts = tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()
    return {"channels": [*map(number, parts)], "axis": tensor.q_per_channel_axis()}


def _nested(tensor: Tensor, number: PartNumber) -> Json:
    places = (
        tensor._nested_tensor_size(),
        tensor._nested_tensor_strides(),
        tensor._nested_tensor_storage_offsets(),
    )
    return {"nested": [*map(number, places)]}


UNINITIALISED: Final[Json] = {"uninitialised": True}
"""What describes a parameter or buffer that a lazy module was yet to fill."""


def compose(description: object, look: Look, base: Tensor, part_of: PartOf) -> Tensor:
    """The tensor of a description; `base` has the bytes of its storage. A `ValueError` if it can't be one."""
    fields = Fields(description)
    composer = next((made for word, made in _COMPOSERS.items() if word in fields), None)
    if composer is None:
        raise ValueError(f"a tensor consists of {str(description)[:60]}")
    try:
        return composer(fields, look, base, part_of)
    except (RuntimeError, IndexError) as error:
        raise ValueError(f"a {look.layout} tensor cannot be made: {error}") from error


def _uninitialised(fields: Fields, look: Look, base: Tensor, part_of: PartOf) -> Tensor:
    kind = cast(
        "Callable[..., Tensor]", UninitializedParameter if look.requires_grad else UninitializedBuffer
    )
    return kind(look.requires_grad, device="cpu", dtype=look.dtype)


def _composed_per_tensor(fields: Fields, look: Look, base: Tensor, part_of: PartOf) -> Tensor:
    scale, zero_point = float(fields.text("scale")), as_integer(fields.any("zero_point"))
    empty = torch._empty_affine_quantized([0], scale=scale, zero_point=zero_point, dtype=look.dtype)
    return _on(base, empty, look)


def _composed_per_channel(fields: Fields, look: Look, base: Tensor, part_of: PartOf) -> Tensor:
    scales, zero_points = map(part_of, fields.counts("channels"))
    axis = fields.count("axis")
    if axis >= len(look.shape) or scales.shape != (look.shape[axis],) or scales.shape != zero_points.shape:
        raise ValueError(f"a quantized tensor has {scales.numel()} scales along dimension {axis}")
    make = cast("Callable[..., Tensor]", torch._empty_per_channel_affine_quantized)
    empty = make([*look.shape], scales=scales, zero_points=zero_points, axis=axis, dtype=look.dtype)
    return _on(base, empty, look)


def _on(base: Tensor, empty: Tensor, look: Look) -> Tensor:
    region = look.region
    if region.size != look.shape or region.itemsize != look.dtype.itemsize:
        raise ValueError(f"a quantized tensor of shape {list(look.shape)[:9]} is no part of its storage")
    return empty.set_(base.untyped_storage(), region.offset, region.size, region.stride)


def _composed_nested(fields: Fields, look: Look, base: Tensor, part_of: PartOf) -> Tensor:
    sizes, strides, offsets = map(part_of, fields.counts("nested"))
    count = base.nbytes // look.dtype.itemsize
    for held in (sizes, strides, offsets):
        if (
            held.dtype is not torch.int64
            or (held.numel() and int(held.min()) < 0)
            or held.shape[0] != sizes.shape[0]
        ):
            raise ValueError("the parts of a nested tensor have impossible places")
    ends = offsets + ((sizes - 1) * strides).sum(dim=1) + 1
    filled = (sizes > 0).all(dim=1)
    if sizes.shape != strides.shape or (filled.any() and int(ends[filled].max()) > count):
        raise ValueError("a part of a nested tensor ends beyond its storage")
    flat = base[: count * look.dtype.itemsize].view(look.dtype)
    return torch._nested_view_from_buffer(flat, sizes, strides, offsets).detach()


def _composed_sparse(fields: Fields, look: Look, base: Tensor, part_of: PartOf) -> Tensor:
    indices, values = map(part_of, fields.counts("sparse"))
    made = torch.sparse_coo_tensor(indices, values, look.shape, check_invariants=True)
    return made._coalesced_(fields.flag("is_coalesced"))  # said of indices that are not sorted, too


def _composed_compressed(fields: Fields, look: Look, base: Tensor, part_of: PartOf) -> Tensor:
    parts = compressed, plain, values = tuple(map(part_of, fields.counts("compressed")))
    make = cast("Callable[..., Tensor]", torch.sparse_compressed_tensor)
    try:
        return make(*parts, look.shape, layout=look.layout, check_invariants=True)
    except RuntimeError as error:
        if "sorted and distinct" not in str(error):
            raise
    # torch makes such tensors and computes with them; that nothing leads out of them is seen to here
    blocks = values.shape[plain.dim() : plain.dim() + 2] if look.layout in _BY_BLOCKS else (1, 1)
    batch = compressed.dim() - 1
    across = 1 if look.layout in _BY_ROWS else 0
    limit = look.shape[batch + across] // blocks[across]
    rises = bool((compressed.diff(dim=-1) >= 0).all()) and bool((compressed[..., 0] == 0).all())
    ends = bool((compressed[..., -1] == plain.shape[-1]).all())
    if not (rises and ends and int(plain.min()) >= 0 and int(plain.max()) < limit):
        raise ValueError("the indices of a sparse tensor lead out of it")
    return make(*parts, look.shape, layout=look.layout, check_invariants=False)


_COMPOSERS: Final[Mapping[str, Callable[[Fields, Look, Tensor, PartOf], Any]]] = {
    "uninitialised": _uninitialised,
    "scale": _composed_per_tensor,
    "channels": _composed_per_channel,
    "nested": _composed_nested,
    "sparse": _composed_sparse,
    "compressed": _composed_compressed,
}
