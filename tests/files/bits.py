"""Tensors of every layout, and whether two are the same bit for bit."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor

from torchlens._files.dtypes import DTYPES
from torchlens._files.values import StoredValues
from torchlens._files.writer import ValueWriter

TYPES = sorted(DTYPES)
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def octets(tensor: Tensor) -> bytes:
    """The elements in order, as they stand in memory: conj and neg bits are not resolved."""
    plain = tensor.detach()
    plain = plain.conj() if plain.is_conj() else plain
    plain = plain._neg_view() if plain.is_neg() else plain
    plain = torch.view_as_real(plain) if plain.dtype is torch.complex128 else plain
    integers = plain.view(INTEGERS[plain.itemsize])  # of which every bit pattern is copied as it is
    return integers.contiguous().numpy().tobytes()


def is_gapless(tensor: Tensor) -> bool:
    """Whether each byte between the first and the last element belongs to just one element."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def check_same(stored: Tensor, value: Tensor) -> None:
    """Raise unless a tensor that was read is what a value was, in all that a reader can see."""
    assert type(stored) is Tensor
    assert (stored.dtype, stored.shape, stored.device.type) == (value.dtype, value.shape, "cpu")
    assert (stored.is_conj(), stored.is_neg()) == (value.is_conj(), value.is_neg())
    assert not stored.requires_grad
    assert not stored.is_inference()
    assert octets(stored) == octets(value.cpu())
    if is_gapless(value):
        assert stored.stride() == value.stride()


def number_of(key: str) -> Tensor:
    """A value that is the key's own, 100 float32 numbers."""
    seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "little")
    return torch.randn(100, generator=torch.Generator().manual_seed(seed))


def write(path: Path, values: Mapping[str, Tensor], **sizes: int) -> ValueWriter:
    """A closed writer to which the values were put."""
    writer = ValueWriter(path, **sizes)
    for key, value in values.items():
        writer.put(key, value, {"label": f"op:{key}"})
    writer.close()
    return writer


def check_numbers(path: Path, keys: set[str], status: str) -> StoredValues:
    """Raise unless each key is there with its own value, or missing with a reason."""
    stored = StoredValues(path)
    assert stored.status == status
    assert set(stored) | set(stored.missing) == keys
    assert not set(stored) & set(stored.missing)
    for key in stored:
        check_same(stored[key], number_of(key))
    for key in keys:
        assert stored.about(key) == {"label": f"op:{key}"}
    stored.verify()
    return stored


class Recipe(NamedTuple):
    """How to make a tensor; torch can't print those of every type."""

    dtype: str
    memory: bytes
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    conj: bool
    neg: bool

    def tensor(self) -> Tensor:
        base = torch.frombuffer(bytearray(self.memory), dtype=torch.uint8).view(DTYPES[self.dtype])
        tensor = base.as_strided(self.shape, self.stride, self.offset)
        tensor = tensor.conj() if self.conj else tensor
        return tensor._neg_view() if self.neg else tensor


@st.composite
def strided(draw: st.DrawFn) -> Recipe:
    """A tensor over random bytes: any type; any sizes, strides (0 and overlaps among them) and offset."""
    name = draw(st.sampled_from(TYPES))
    dtype = DTYPES[name]
    room = 256 // dtype.itemsize - 1
    last = offset = draw(st.integers(0, 3))
    shape, stride = [], []
    for _ in range(draw(st.integers(0, 4))):
        size = draw(st.integers(0, 4))
        step = draw(st.integers(0, (room - last) // max(1, size - 1)))
        shape.append(size)
        stride.append(step)
        last += max(0, size - 1) * step
    conj = dtype.is_complex and draw(st.booleans())
    neg = dtype.is_floating_point and draw(st.booleans())
    memory = draw(st.binary(min_size=256, max_size=256))
    return Recipe(name, memory, tuple(shape), tuple(stride), offset, conj, neg)
