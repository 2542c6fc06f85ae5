"""Where a kept value goes: it stays the live tensor, or is copied, to memory or into a file."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from torchlens._unseen import unseen
from torchlens._values.geometry import flat_span, region_of
from torchlens._values.ghost import Stored
from torchlens._values.versions import gradient_edge_of
from torchlens.options import CaptureOptions


class Placing(Protocol):
    """Decides what a kept value is held as."""

    can_lose: bool
    """Whether a value that was put may turn out to be lost, as on a full disk."""

    def put(self, tensor: Tensor, row: int, slot: int, last_row: int) -> Tensor | Stored:
        """What to hold for a tensor that a row gave, as it is now, `last_row` being the last row there is."""
        ...

    def open(self) -> None:
        """Get ready; raises where that is not possible."""
        ...

    def close(self) -> str | None:
        """All is put. What was lost and why, as one sentence; None if nothing was."""
        ...

    def overwritten(self, tensor: Tensor) -> None:
        """The tensor's storage is about to be written."""
        ...

    def lent(self, tensor: Tensor) -> None:
        """The tensor's memory was handed to code that writes unseen."""
        ...


class InMemory:
    """Has nothing to open, to close, or to remember of a storage."""

    can_lose = False

    def open(self) -> None: ...
    def close(self) -> None: ...
    def overwritten(self, tensor: Tensor) -> None: ...
    def lent(self, tensor: Tensor) -> None: ...


class Live(InMemory):
    """The tensor itself stays alive, or an alias of it that holds no autograd graph."""

    def __init__(self, *, detached: bool) -> None:
        self._detached = detached

    def put(self, tensor: Tensor, row: int, slot: int, last_row: int) -> Tensor:
        if not (self._detached and tensor.requires_grad):
            return tensor
        with unseen():
            return tensor.detach()


class Copies(InMemory):
    """A copy is held, on a device of choice."""

    def __init__(self, device: torch.device | None, *, connected: bool, there: Live | None) -> None:
        self._device = device
        self._connected = connected
        """Whether the copy belongs to the autograd graph of the forward."""
        self._there = there
        """What to do with a value that is on the device already; None: copy it too."""

    def put(self, tensor: Tensor, row: int, slot: int, last_row: int) -> Tensor | Stored:
        if tensor.is_meta or (self._there is not None and self._device in (None, tensor.device)):
            return tensor if self._there is None else self._there.put(tensor, row, slot, last_row)
        with unseen():
            source = tensor if self._connected else tensor.detach()
            edge = gradient_edge_of(tensor) if self._connected else None
            return Copy(_copied(source, self._device or tensor.device), last_row, edge)


class Copy:
    """A copied value."""

    __slots__ = ("_edge", "_tensor", "row")

    def __init__(self, tensor: Tensor, row: int, edge: GradientEdge | None = None) -> None:
        self._tensor = tensor
        self.row = row
        self._edge = edge
        """Where the value itself is in the autograd graph; None for a copy that is no part of it."""

    def read(self, what: str) -> Tensor:
        return self._tensor

    def in_memory(self) -> Tensor:
        return self._tensor

    def gradient_edge(self) -> GradientEdge | None:
        return self._edge


def placing_of(options: CaptureOptions) -> Placing | None:
    """Where the values go that a capture with these options keeps; None: nowhere, the rows hold them."""
    device = None if options.output_device is None else torch.device(options.output_device)
    live = Live(detached=options.detach_saved_activations or options.inference_only)
    if options.copy or device is not None:
        return Copies(device, connected=options.backward_ready, there=None if options.copy else live)
    return live if options.detach_saved_activations or options.backward_ready else None


def _copied(tensor: Tensor, device: torch.device) -> Tensor:
    """A copy with the same elements. One whose elements repeat, as `expand` gives, stays as small."""
    if tensor.layout is torch.strided and not tensor.is_nested and not tensor.requires_grad:
        region = region_of(tensor)
        plain = not (tensor.is_conj() or tensor.is_neg() or tensor.is_quantized or tensor.is_meta)
        if plain and region.may_overlap_itself:
            return flat_span(tensor).to(device, copy=True).as_strided(region.size, region.stride)
    return tensor.to(device, copy=True)
