"""Whether two tensors are the same, bit for bit or within what a dtype can tell."""

from __future__ import annotations

import torch
from torch import Tensor

from torchlens._values.geometry import shape_of


def difference(expected: Tensor, found: Tensor) -> str | None:
    """What sets two tensors apart, in a few words; None when they are equal bit for bit.

    Values on `meta` have no bits: only what they look like is compared.
    """
    looks = zip(("dtype", "layout", "device", "shape"), _looks(expected), _looks(found))
    for name, left, right in looks:
        if left != right:
            return f"{name} {right} instead of {left}"
    return None if is_same(expected, found) else _how_far(list(zip(parts_of(expected), parts_of(found))))


def is_same(expected: Tensor, found: Tensor) -> bool:
    """Whether two tensors are equal bit for bit, in dtype, layout, device and shape as well."""
    if _looks(expected) != _looks(found):
        return False
    return expected.is_meta or all(map(_equal_bits, parts_of(expected), parts_of(found)))


def is_equal(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same values, 0 being equal to -0 and a NaN to another."""
    if _looks(one) != _looks(other):
        return False
    if one.is_meta:
        return True
    pairs = zip(parts_of(one), parts_of(other))
    return all(_equal_bits(a, b) or (a.shape == b.shape and _equal_values(a, b)) for a, b in pairs)


def is_close(expected: Tensor, found: Tensor) -> bool:
    """Whether two tensors that look alike agree within the tolerances torch tests its kernels with."""
    try:
        torch.testing.assert_close(parts_of(found), parts_of(expected), equal_nan=True)
    except AssertionError:
        return False
    return True


def _looks(tensor: Tensor) -> tuple[torch.dtype, torch.layout, torch.device, tuple[int, ...]]:
    return tensor.dtype, tensor.layout, tensor.device, shape_of(tensor)


def parts_of(tensor: Tensor) -> list[Tensor]:
    """The plain strided tensors that make up the value."""
    if tensor.is_nested:
        return [part for item in tensor.unbind() for part in parts_of(item)]
    if tensor.is_mkldnn:
        return [tensor.to_dense()]
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    if tensor.is_quantized:
        return [tensor.int_repr(), *_scale(tensor)]
    return [tensor.resolve_conj().resolve_neg()]


def _scale(quantized: Tensor) -> list[Tensor]:
    if quantized.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return [torch.tensor([quantized.q_scale(), float(quantized.q_zero_point())])]
    return [quantized.q_per_channel_scales(), quantized.q_per_channel_zero_points()]


def _equal_values(left: Tensor, right: Tensor) -> bool:
    return bool(((left == right) | ((left != left) & (right != right))).all())


def _equal_bits(left: Tensor, right: Tensor) -> bool:
    if left.shape != right.shape:
        return False
    if left.numel() == 0:
        return True
    repeated = [one == other == 0 for one, other in zip(left.stride(), right.stride())]
    if any(repeated):  # an expanded tensor may be larger than any memory
        shown = tuple(slice(0, 1) if each else slice(None) for each in repeated)
        left, right = left[shown], right[shown]
    return torch.equal(_bits(left), _bits(right))


def _bits(tensor: Tensor) -> Tensor:
    dense = tensor.detach().contiguous()
    # a lone element is contiguous whatever its stride, but only with stride 1 seen as bytes
    return dense.as_strided((dense.numel(),), (1,)).view(torch.uint8)


def _how_far(pairs: list[tuple[Tensor, Tensor]]) -> str:
    for left, right in pairs:
        if left.shape != right.shape:
            return f"{right.numel()} stored elements instead of {left.numel()}"
    unequal = [(left, right) for left, right in pairs if not _equal_bits(left, right)]
    left, right = unequal[0]
    wide = torch.complex128 if left.is_complex() else torch.float64
    one, other = left.detach().to(wide), right.detach().to(wide)
    places = ~((one == other) | (one.isnan() & other.isnan()))
    if not bool(places.any()):
        return "the bits of zeros or NaNs differ"
    count = f"{int(places.sum())} of {left.numel()} elements differ"
    apart = (one - other).abs()[places]
    return (
        f"{count}, NaN among them" if apart.isnan().any() else f"{count}, by up to {apart.max().item():.3g}"
    )
