"""The tensors of a saved trace: parts of mapped storages, and what stands for those without elements."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from torchlens._files.dtypes import QUANTIZED
from torchlens._unseen import unseen
from torchlens._values.geometry import storage_key
from torchlens._values.ghost import Ghost, Look, Recorded, StorageKey
from torchlens._values.region import Region
from torchlens.errors import MissingValueError
from torchlens.saving.arguments import DTYPES, LAYOUTS, device_of
from torchlens.saving.blobs import Kept, MappedBlobs
from torchlens.saving.checks import as_count
from torchlens.saving.composites import compose

_MOST_DIMENSIONS = 1000
_MOST_ELEMENTS = 2**63
_MOST_WINDOWS = 1024
"""How often an element of a storage may stand in a tensor, on average, except where a stride is 0."""


@dataclass(slots=True)
class Lost:
    """Stands for a value that could not be written, or was not to be."""

    row: int
    reason: str

    def read(self, what: str) -> NoReturn:
        """There is no value: raises `MissingValueError`."""
        raise MissingValueError(
            f"the value of {what} is not in the file: {self.reason}",
            f"a value it needs is not in the file: {self.reason}",
        )

    def in_memory(self) -> None:
        """It takes none."""

    def gradient_edge(self) -> GradientEdge | None:
        """A file holds no autograd graph."""
        return None


@dataclass(slots=True)
class PutBy:
    """A value that had been put by when its run wrote over the tensor."""

    tensor: Tensor
    row: int
    blobs: MappedBlobs
    storage: int

    def read(self, what: str) -> Tensor:
        """The value, if its bytes are those that were written."""
        self.blobs.verify(self.storage, what)
        return self.tensor

    def in_memory(self) -> Tensor:
        """The tensor, which is mapped."""
        return self.tensor

    def gradient_edge(self) -> GradientEdge | None:
        """A file holds no autograd graph."""
        return None


class LoadedTensors:
    """Makes the tensors of a file, in the order of their numbers; a `ValueError` for what cannot be one."""

    def __init__(
        self, columns: Mapping[str, Sequence[Any]], kept: Sequence[Kept], blobs: MappedBlobs
    ) -> None:
        self.tensors: list[Recorded] = []
        self.devices: dict[int, torch.device] = {}
        """By id of a tensor, the device it was on, where that is not the one it was loaded to."""
        self.lost: dict[int, str] = {}
        """By id of a tensor, why it has no elements that could be read."""
        self.storage_of: dict[StorageKey, int] = {}
        """Number of each storage, by key."""
        self._kept = kept
        self._blobs = blobs
        self._columns = columns
        self._first: dict[int, Tensor] = {}
        self._own_keys: dict[int, StorageKey] = {}
        self._looks: dict[tuple[object, ...], Look] = {}
        self._single_dtype = _storages_of_one_dtype(columns)
        with unseen(), torch.inference_mode(False), torch.no_grad():
            for row in zip(*columns.values()):
                self.tensors.append(self._made(dict(zip(columns, row))))

    def __getitem__(self, number: int) -> Recorded:
        if not 0 <= number < len(self.tensors):
            raise ValueError(f"it names tensor {number} of {len(self.tensors)}")
        return self.tensors[number]

    def key(self, storage: int) -> StorageKey:
        """What names a storage here."""
        if not 0 <= storage < len(self._kept):
            raise ValueError(f"it names storage {storage} of {len(self._kept)}")
        if storage in self._own_keys:
            return self._own_keys[storage]
        key = storage_key(self._blobs.base(storage))
        self.storage_of[key] = storage
        return key

    def _made(self, row: Mapping[str, Any]) -> Recorded:
        key, look = self.key(row["storage"]), self._look(row)
        if row["row"] is None and (row["parts"] is not None or _is_whole(look)):
            made = self._tensor(row, look) if row["parts"] is None else self._composite(row, look)
            if look.device != made.device:
                self.devices[id(made)] = look.device
            if row["reason"] is not None:
                self.lost[id(made)] = row["reason"]
            return made
        before = None if row["before"] is None else self[row["before"]]
        ghost = Ghost(look, -1 if row["row"] is None else row["row"], key, before, None)
        if row["row"] is None and row["reason"] is None:
            raise ValueError(f"a tensor of layout {look.layout} is no part of a storage")
        if row["reason"] is not None:
            ghost.kept = Lost(ghost.row, row["reason"])
        elif row["kept"] is not None:
            held = self[row["kept"]]
            if isinstance(held, Tensor) and row["kept_row"] is None:
                ghost.kept = held
            elif isinstance(held, Tensor):
                ghost.kept = PutBy(held, row["kept_row"], self._blobs, self._columns["storage"][row["kept"]])
            else:
                ghost.kept = Lost(ghost.row, _reason_of(held))
        return ghost

    def _composite(self, row: Mapping[str, Any], look: Look) -> Tensor:
        storage: int = row["storage"]
        parts: list[Tensor] = []

        def part_of(number: int) -> Tensor:
            part = self[number]
            if not isinstance(part, Tensor) or part.device.type != "cpu":
                raise ValueError(f"tensor {number}, a part of another, has no elements")
            self._blobs.verify(self._columns["storage"][number], "a part of a tensor")
            parts.append(part)
            return part

        made = compose(json.loads(row["parts"]), look, self._blobs.base(storage), part_of)
        key = storage_key(made)
        if key < 0:  # it has no storage: what the record says of one, it says of the tensor
            self._own_keys[storage] = key
        return made

    def param(self, number: int) -> Tensor:
        """The tensor of a parameter, which has a shape even where it has no elements."""
        found = self[number]
        if isinstance(found, Tensor):
            return found
        made = found.as_meta()
        self.lost[id(made)] = _reason_of(found)
        self.tensors.append(made)  # which keeps the id its own
        return made

    def _look(self, row: Mapping[str, Any]) -> Look:
        shape: tuple[int, ...] = tuple(row["shape"])
        size: tuple[int, ...] = tuple(row["size"])
        stride: tuple[int, ...] = tuple(row["stride"])
        storage: int = row["storage"]
        low, itemsize = self._kept[storage].low, int(row["itemsize"])
        key = (shape, size, stride, row["offset"], itemsize, low, *(row[name] for name in _LOOKS))
        found = self._looks.get(key)
        if found is None:
            if row["dtype"] not in DTYPES or row["layout"] not in LAYOUTS:
                raise ValueError(f"torch {torch.__version__} has no {row['dtype'][:40]} {row['layout'][:40]}")
            if not 0 < itemsize <= 1024 or (low % itemsize and low) or row["offset"] * itemsize < low:
                raise ValueError(f"a tensor begins before byte {low} of its storage")
            if len(size) != len(stride) or min((*size, *stride, 0)) < 0 or min((*shape, 0)) < -1:
                raise ValueError(f"a tensor has sizes {list(size)[:9]} and strides {list(stride)[:9]}")
            region = Region(row["offset"] - low // itemsize, size, stride, itemsize)
            if len(size) > _MOST_DIMENSIONS or prod(n for n in size if n) >= _MOST_ELEMENTS:
                raise ValueError(f"a tensor has {len(size)} dimensions, or too many elements to count")
            if _repeats_too_often(region):
                raise ValueError("a tensor shows the same elements of its storage again and again")
            if region.span[1] >= _MOST_ELEMENTS:
                raise ValueError("a tensor ends where no storage does")
            found = self._looks[key] = Look(
                shape,
                region,
                DTYPES[row["dtype"]],
                device_of(row["device"]),
                LAYOUTS[row["layout"]],
                as_count(row["nbytes"]),
                row["requires_grad"],
                row["is_nested"],
            )
        return found

    def _tensor(self, row: Mapping[str, Any], look: Look) -> Tensor:
        """A part of a storage. Tensors on one storage count its changes together."""
        storage, region, dtype = row["storage"], look.region, look.dtype
        if look.shape != region.size or dtype.itemsize != region.itemsize:
            if row["reason"] is None:
                raise ValueError(f"a tensor of shape {list(look.shape)[:9]} is no part of its storage")
            return torch.empty(look.shape, dtype=dtype, device="meta")
        if region.span[1] > self._kept[storage].nbytes and region.span[1] > region.span[0]:
            raise ValueError(f"a tensor ends beyond the {self._kept[storage].nbytes} bytes of its storage")
        base = self._blobs.base(storage)
        if 0 in region.size:
            device = "meta" if look.device.type == "meta" else base.device
            made = torch.empty_strided(region.size, region.stride, dtype=dtype, device=device)
            if device != "meta":
                made.set_(base.untyped_storage(), region.offset, region.size, region.stride)
        elif storage not in self._single_dtype:
            flat = base[: base.nbytes // dtype.itemsize * dtype.itemsize].view(dtype)
            made = flat.as_strided(region.size, region.stride, region.offset).detach()
        else:
            first = self._first.get(storage)
            if first is None:
                made = torch.empty(0, dtype=dtype, device=base.device)
                made.set_(base.untyped_storage(), region.offset, region.size, region.stride)
                self._first[storage] = made
            else:
                made = first.as_strided(region.size, region.stride, region.offset).detach()
        made = made.conj() if row["is_conj"] else made
        return made._neg_view() if row["is_neg"] else made


def _repeats_too_often(region: Region) -> bool:
    """Whether windows overlap more than any computation makes them: walking them would take for ever."""
    moving = [(size, step) for size, step in zip(region.size, region.stride) if size > 1 and step]
    covered = 1 + sum((size - 1) * step for size, step in moving)
    return prod(size for size, _ in moving) > _MOST_WINDOWS * covered + 2**16


def _is_whole(look: Look) -> bool:
    """Whether there can be a tensor of this look, with elements or without."""
    strided = look.layout is torch.strided and not look.is_nested and min((*look.shape, 0)) == 0
    return strided and look.dtype not in _QUANTIZED


_QUANTIZED = tuple(DTYPES[name] for name in QUANTIZED if name in DTYPES)
_LOOKS = ("dtype", "device", "layout", "nbytes", "requires_grad", "is_nested")


def _storages_of_one_dtype(columns: Mapping[str, Sequence[Any]]) -> set[int]:
    """Storages all of whose tensors have the same type of elements, which can then be views of each other."""
    found: dict[int, set[str]] = {}
    for storage, dtype, row, reason in zip(
        *(columns[name] for name in ("storage", "dtype", "row", "reason"))
    ):
        if row is None and reason is None:
            found.setdefault(storage, set()).add(dtype)
    return {storage for storage, dtypes in found.items() if len(dtypes) == 1}


def _reason_of(ghost: Recorded) -> str:
    kept = ghost.kept if isinstance(ghost, Ghost) else None
    return kept.reason if isinstance(kept, Lost) else "only its shape was written"
