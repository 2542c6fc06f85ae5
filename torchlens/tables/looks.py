"""Shape, dtype, device and bytes of tensors, each look worked out once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from torchlens._arrow import Cells, Coded
from torchlens._values.geometry import bytes_of, dtype_name, shape_of
from torchlens._values.ghost import Ghost, Recorded
from torchlens.tables.schema import that_fit


class Look(NamedTuple):
    """What a tensor is apart from its elements; shape and bytes are None while a lazy module has not run."""

    shape: tuple[int, ...] | None
    dtype: str
    device: str
    nbytes: int | None


class Looks:
    """The looks of many tensors, by number.

    `device_of` tells where a tensor was during the run: a value read from a file is on the CPU now.
    """

    def __init__(self, device_of: Callable[[Recorded], torch.device]) -> None:
        self.found: list[Look] = []
        self._device_of = device_of
        self._numbers: dict[object, int] = {}

    def number(self, tensor: Recorded) -> int:
        """The number of a tensor's look; an unusual tensor has one of its own, even where two look alike."""
        device = self._device_of(tensor)
        key = _key(tensor, device)
        number = None if key is None else self._numbers.get(key)
        if number is None:
            number = len(self.found)
            self.found.append(_look(tensor, device))
            if key is not None:
                self._numbers[key] = number
        return number

    def cells(self, numbers: Sequence[int | None]) -> dict[str, Cells]:
        """The columns `shape`, `dtype`, `device` and `nbytes` of tensors with these looks."""
        return {
            "shape": Coded(numbers, [look.shape for look in self.found]),
            "dtype": Coded(numbers, [look.dtype for look in self.found]),
            "device": Coded(numbers, [look.device for look in self.found]),
            "nbytes": Coded(numbers, that_fit(look.nbytes for look in self.found)),
        }


def _look(tensor: Recorded, device: torch.device) -> Look:
    """The look of one tensor."""
    dtype = dtype_name(tensor.dtype)
    if isinstance(tensor, Tensor) and is_lazy(tensor):
        return Look(None, dtype, str(device), None)
    return Look(shape_of(tensor), dtype, str(device), bytes_of(tensor))


def _key(tensor: Recorded, device: torch.device) -> object:
    """Equal for tensors that look alike; None where that takes more than a glance to tell."""
    if isinstance(tensor, Ghost):
        return id(tensor.look), device
    if type(tensor) not in _PLAIN or tensor.layout is not torch.strided or tensor.is_nested:
        return None
    return tensor.shape, tensor.dtype, device


_PLAIN: Final = (Tensor, torch.nn.Parameter)
