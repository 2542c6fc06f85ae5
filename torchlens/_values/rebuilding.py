"""An older version of a storage, made from the newest by undoing writes on a copy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from torchlens._values.geometry import region_of, same_geometry, storage_key
from torchlens._values.ghost import Ghost, Recorded
from torchlens._values.ledger import Write
from torchlens._values.region import Region, share_elements, surely_covers


def to_undo(region: Region, writes: Iterable[Write]) -> list[Write]:
    """Of writes, given oldest first, those that changed the region.

    One that saved all of it ends the search: what it saved is what the region held before.
    """
    found: list[Write] = []
    for write in writes:
        changed = region_of(write.region)
        if share_elements(region, changed):
            found.append(write)
            if write.saved is not None and write.index is None and surely_covers(changed, region):
                break
    return found


def rebuilt(alias: Tensor, since: Sequence[Write]) -> Tensor:
    """The alias's elements with the writes undone, newest first, on a copy of the storage."""
    with torch.no_grad(), torch._C.DisableTorchFunction():
        if storage_key(alias) < 0:  # no storage to rebuild: the whole tensor was saved
            saved = next(write.saved for write in since if write.saved is not None)
            return saved.clone()
        first = since[0]
        if first.saved is not None and first.index is None and _is_seen_alike(first.region, alias):
            return first.saved.clone()
        scratch = alias.untyped_storage().clone()
        for write in reversed(since):
            if write.saved is None:
                continue
            target = _on(scratch, write.region)
            if write.index is None:
                target.copy_(write.saved)
            else:
                target[write.index] = write.saved
        view = _on(scratch, alias)
        mostly = view.numel() * view.element_size() * 2 >= scratch.nbytes()
        return view if mostly else view.clone()


def _is_seen_alike(one: Recorded, other: Tensor) -> bool:
    """Whether two tensors on one storage have the same elements in the same way."""
    if isinstance(one, Ghost):
        return False
    bits = (one.dtype, one.is_conj(), one.is_neg()) == (other.dtype, other.is_conj(), other.is_neg())
    return bits and same_geometry(one, other)


def _on(storage: torch.UntypedStorage, like: Recorded) -> Tensor:
    """A tensor with the geometry of `like` on another storage."""
    assert not isinstance(like, Ghost), "elements were saved for a place that was not kept"
    if like.is_nested:
        return _nested_on(storage, like)
    if like.is_quantized:
        return _quantized_on(storage, like)
    view = torch.empty(0, dtype=like.dtype, device=like.device)
    view.set_(storage, like.storage_offset(), like.shape, like.stride())
    if like.is_conj():
        view = view.conj()
    return torch._neg_view(view) if like.is_neg() else view


def _nested_on(storage: torch.UntypedStorage, like: Tensor) -> Tensor:
    flat = torch.empty(0, dtype=like.dtype, device=like.device)
    flat.set_(storage, 0, (storage.nbytes() // like.element_size(),), (1,))
    places = like._nested_tensor_size(), like._nested_tensor_strides(), like._nested_tensor_storage_offsets()
    return torch._nested_view_from_buffer(flat, *places)


def _quantized_on(storage: torch.UntypedStorage, like: Tensor) -> Tensor:
    integers = torch.empty(0, dtype=_INTEGERS[like.dtype], device=like.device)
    integers.set_(storage, like.storage_offset(), like.shape, like.stride())
    if like.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return torch._make_per_tensor_quantized_tensor(integers, like.q_scale(), like.q_zero_point())
    scales, zeros = like.q_per_channel_scales(), like.q_per_channel_zero_points()
    return torch._make_per_channel_quantized_tensor(integers, scales, zeros, like.q_per_channel_axis())


_INTEGERS = {torch.qint8: torch.int8, torch.quint8: torch.uint8, torch.qint32: torch.int32}
