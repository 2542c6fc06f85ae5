"""Another value in the place of a recorded one, to see whether what was computed from it moves."""

from __future__ import annotations

import torch
from torch import Tensor

_SEED = 1


def perturbed(value: Tensor) -> Tensor | None:
    """A value of the same kind that differs wherever it can; None where there is no other to be had.

    Floating-point values are moved by noise of their own size. Integers, which may be indices, are put in
    another order: each stays one that the model has met.
    """
    value = value.detach()
    if value.is_nested or value.layout is not torch.strided or value.is_quantized or value.is_meta:
        return None
    if value.numel() == 0:
        return None
    if value.dtype is torch.bool:
        return ~value
    if value.is_floating_point() or value.is_complex():
        return _with_noise(value)
    reordered = value.reshape(-1).flip(0).reshape(value.shape)
    return None if torch.equal(reordered, value) else reordered


def _with_noise(value: Tensor) -> Tensor | None:
    generator = torch.Generator().manual_seed(_SEED)
    real = torch.float64 if value.dtype in (torch.float64, torch.complex128) else torch.float32
    wide = real.to_complex() if value.is_complex() else real
    noise = torch.randn(value.shape, dtype=wide, generator=generator).to(value.device)
    finite = value.to(wide).nan_to_num(0.0, 0.0, 0.0)
    return (finite + noise * (1.0 + finite.abs().mean())).to(value.dtype)
