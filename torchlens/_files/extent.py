"""The elements of a tensor, each once: which bytes of its storage they are, and how they are copied."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, Final, TypeAlias, cast

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor, maybe_current_level
from torch.nn.parameter import is_lazy

from torchlens._files.dtypes import NAMES

_PLAIN_DISPATCH: Final = cast("Any", Tensor).__torch_dispatch__
_DETACH: Final = torch._C.TensorBase.detach
_CARRIERS: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integers to copy elements as: any bit pattern survives, and every device can copy them."""

Dims: TypeAlias = tuple[int, ...]


class NoElementsError(Exception):
    """The tensor has no elements of its own that could be copied; says why."""


@dataclass(frozen=True, slots=True)
class Extent:
    """What a copy of a tensor's elements takes, without asking for more memory than they cover.

    Where the elements fill the bytes from the first to the last (in any order; overlapping; expanded), the
    copy is `verbatim`: these bytes as they stand, read through the tensor's own strides. Otherwise it has
    the elements one after the other, in the order they have in memory.
    """

    low: int
    """First byte in the storage."""
    past: int
    """One past the last."""
    nbytes: int
    """Of the copy."""
    verbatim: bool
    shape: Dims
    source_stride: Dims
    stride: Dims
    """To read the copy by."""


def plain_tensor(tensor: Tensor) -> Tensor:
    """The same elements as no subclass, so that no code of the user's answers; raises `NoElementsError`."""
    reason = _without_elements(tensor)
    if reason is not None:
        raise NoElementsError(f"{reason}, which has no plain elements to write")
    return tensor if type(tensor) is Tensor else _DETACH(tensor)


def _without_elements(tensor: Tensor) -> str | None:
    """What a tensor without plain elements is, for a sentence."""
    kind = cast("type[Any]", type(tensor))
    if kind is not Tensor and kind.__torch_dispatch__ is not _PLAIN_DISPATCH:
        return f"a wrapper subclass ({kind.__name__})"
    if is_lazy(tensor):
        return "a parameter that a lazy module will fill"
    if maybe_current_level() is not None or is_functorch_wrapped_tensor(tensor):
        return "a tensor inside a torch.func transform"
    if tensor.is_nested:
        return "a nested tensor"
    if tensor.layout is not torch.strided:
        return f"a tensor of layout {str(tensor.layout).removeprefix('torch.')}"
    if tensor.is_quantized or tensor.dtype not in NAMES:
        return f"a quantized tensor ({str(tensor.dtype).removeprefix('torch.')})"
    if tensor.is_meta:
        return "a meta tensor"
    if tensor._is_zerotensor():
        return "a zero tensor without memory"
    return "a functional tensor" if torch._is_functional_tensor(tensor) else None


def extent_of(tensor: Tensor) -> Extent:
    """The extent of a plain tensor."""
    shape, stride, itemsize = tuple(tensor.shape), tensor.stride(), tensor.itemsize
    low = cast("int", tensor.storage_offset()) * itemsize
    if 0 in shape:
        return Extent(low, low, 0, True, shape, stride, stride)
    storage_bytes = tensor.untyped_storage().nbytes()
    if tensor.is_contiguous():
        past = low + tensor.numel() * itemsize
        if past <= storage_bytes:
            return Extent(low, past, past - low, True, shape, stride, stride)
    moving = [(step, size) for size, step in zip(shape, stride) if size > 1 and step]
    count = prod(size for _, size in moving)
    span = 1 + sum((size - 1) * step for step, size in moving)
    past = low + span * itemsize
    if past > storage_bytes:  # reading there would crash the process
        raise NoElementsError("a tensor whose storage was resized, which has no elements left to write")
    if span <= count:
        return Extent(low, past, span * itemsize, True, shape, stride, stride)
    return Extent(low, past, count * itemsize, False, shape, stride, _packed(shape, stride))


def _packed(shape: Dims, stride: Dims) -> Dims:
    """Strides without gaps, the dimensions in the same order in memory; expanded ones stay expanded."""
    packed = list(stride)
    step = 1
    for dim in sorted(range(len(shape)), key=lambda dim: (stride[dim], -dim)):
        if stride[dim] and shape[dim] > 1:
            packed[dim] = step
            step *= shape[dim]
    return tuple(packed)


def copy_elements(tensor: Tensor, extent: Extent, buffer: Tensor, begin: int) -> None:
    """Copy the elements into a buffer of bytes on the host, from a byte on that is a multiple of 16."""
    carrier = _CARRIERS[min(tensor.itemsize, 8)]
    width = carrier.itemsize
    if extent.verbatim:
        shape, source, target = (extent.nbytes // width,), (1,), (1,)
    else:
        dims = [dim for dim, size in enumerate(extent.shape) if size > 1 and extent.source_stride[dim]]
        parts = tensor.itemsize // width  # two for the halves of a complex128
        shape = (*(extent.shape[dim] for dim in dims), parts)
        source = (*(extent.source_stride[dim] * parts for dim in dims), 1)
        target = (*(extent.stride[dim] * parts for dim in dims), 1)
    elements = torch.empty(0, dtype=carrier, device=tensor.device)
    elements.set_(tensor.untyped_storage(), extent.low // width, shape, source)
    room = torch.empty(0, dtype=carrier, device="cpu")
    room.set_(buffer.untyped_storage(), begin // width, shape, target)
    room.copy_(elements)
