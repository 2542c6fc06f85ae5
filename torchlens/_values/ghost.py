"""What a row holds in place of a tensor that is not kept alive: what it was, and its value if that is kept.

A ghost stands for one tensor as one op gave it. A tensor that a later op gives again, as an in-place one
does, has a ghost for each; the arguments of a call are the ghosts that were the newest then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from torchlens._values.region import Region

StorageKey: TypeAlias = int
"""Address of a storage object; of the tensor itself (negated) where a tensor has no storage."""


class Stored(Protocol):
    """A value by itself, apart from the tensor: a copy, or in a file."""

    @property
    def row(self) -> int:
        """The last row before it was put by: it is the value after that row."""
        ...

    def read(self, what: str) -> Tensor:
        """The value; raises where it was lost, and calls it `what` then."""
        ...

    def in_memory(self) -> Tensor | None:
        """The same, if it takes memory."""
        ...

    def gradient_edge(self) -> GradientEdge | None:
        """Where the op's own value is in the autograd graph; None where that was not kept."""
        ...


@dataclass(slots=True, eq=False)
class Look:
    """What a tensor is apart from its elements. Shared by the ghosts of all tensors that look alike."""

    shape: tuple[int, ...]
    region: Region
    dtype: torch.dtype
    device: torch.device
    layout: torch.layout
    nbytes: int
    requires_grad: bool
    is_nested: bool


class Ghost:
    """A tensor that is not kept, or only its value."""

    __slots__ = ("before", "kept", "key", "look", "row", "under")

    def __init__(
        self, look: Look, row: int, key: StorageKey, before: Recorded | None, under: Ghost | None
    ) -> None:
        self.look = look
        self.before = before
        """The ghost that the same tensor had before this row gave it again."""
        self.under = under
        """The ghost that was the newest on the storage before."""
        self.row = row
        """The row that gave it."""
        self.key = key
        """Its storage, while that lived."""
        self.kept: Tensor | Stored | None = None
        """The tensor itself, kept alive; or its value by itself."""

    def forget(self) -> None:
        """Keep the value no longer."""
        self.kept = None

    @property
    def dtype(self) -> torch.dtype:
        return self.look.dtype

    @property
    def device(self) -> torch.device:
        return self.look.device

    @property
    def requires_grad(self) -> bool:
        return self.look.requires_grad

    @property
    def is_nested(self) -> bool:
        return self.look.is_nested

    @property
    def is_meta(self) -> bool:
        return self.look.device.type == "meta"

    def as_meta(self) -> Tensor:
        """A tensor of this shape, stride and dtype that has no elements."""
        shape = tuple(max(size, 0) for size in self.look.shape)
        stride = self.look.region.stride
        with torch._C.DisableTorchFunction():
            dtype = _PLAIN_DTYPES.get(self.dtype, self.dtype)
            if self.look.layout is not torch.strided or len(stride) != len(shape):
                return torch.empty(shape, dtype=dtype, device="meta")
            return torch.empty_strided(shape, stride, dtype=dtype, device="meta")


_PLAIN_DTYPES: Final = {torch.quint8: torch.uint8, torch.qint8: torch.int8, torch.qint32: torch.int32}
"""What stands for the dtypes of quantized tensors, of which there are none without elements."""

Recorded: TypeAlias = Tensor | Ghost
"""What a row holds for a tensor."""
RECORDED: Final = (Tensor, Ghost)
