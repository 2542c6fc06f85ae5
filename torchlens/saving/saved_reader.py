"""A reader over a loaded record: what a live one finds out from code and functions, this one was told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from torchlens._keys.chains import Frame
from torchlens._records import Record
from torchlens._trace.features import Features
from torchlens._trace.layering import Layering
from torchlens._trace.reader import TraceReader
from torchlens._values.geometry import storage_key
from torchlens._values.ghost import Recorded, StorageKey
from torchlens._values.ledger import Ledger
from torchlens._values.lineage import Lineage
from torchlens._values.store import ValueStore
from torchlens._values.versions import version_of
from torchlens.errors import DamagedFileError, NotSavedError, OverwrittenError
from torchlens.flops.cost import Cost
from torchlens.saving.blobs import MappedBlobs
from torchlens.saving.functions import Unresolved

if TYPE_CHECKING:
    from torch.autograd.graph import GradientEdge


_UNFIT: Final = (RuntimeError, IndexError, TypeError, ValueError, MemoryError)
"""What putting a value together raises where the parts of a file do not fit."""


@dataclass(slots=True)
class Told:
    """What the file says that a live trace computes."""

    layering: Layering
    lineage: Lineage
    costs: Sequence[Cost]
    names: Sequence[str]
    known: Sequence[bool]
    frames: Sequence[tuple[Frame, ...]]
    """By site."""
    composites: Sequence[tuple[str, ...]]
    """By site."""
    requires_grad: Mapping[tuple[int, int], bool]
    """By id of a tensor and row."""
    devices: Mapping[int, torch.device]
    """By id of a tensor that was on another device than it is now."""
    lost: Mapping[int, str]
    """By id of a tensor that has no elements, why."""
    versions: Mapping[int, int | None]
    """By id of a tensor, its version counter when it was loaded."""
    storage_of: Mapping[StorageKey, int]
    blobs: MappedBlobs


class SavedReader(TraceReader):
    """Reads a loaded record."""

    def __init__(self, record: Record, ledger: Ledger, features: Features, told: Told) -> None:
        super().__init__(record, ledger, features)
        self._told = told

    @cached_property
    def values(self) -> ValueStore:
        """Values that lie in a file."""
        return SavedValues(self.record, self.ledger, self._told)

    @cached_property
    def layering(self) -> Layering:
        """As it was when the trace was saved: nothing is grouped again."""
        return self._told.layering

    @cached_property
    def lineage(self) -> Lineage:
        """The edges that were saved."""
        return self._told.lineage

    def func(self, row: int) -> Any:
        """What a row called; `UnsavedFunctionError` where the file has only its name."""
        found = self.rows.func[row]
        if isinstance(found, Unresolved):
            found()  # which raises
        return found

    def name(self, row: int) -> str:
        """The name that was saved."""
        return self._told.names[row]

    def is_spelling_known(self, row: int) -> bool:
        """What was saved of it."""
        return self._told.known[row]

    def frames(self, row: int) -> tuple[Frame, ...]:
        """The frames that were saved."""
        return self._told.frames[self.rows.site[row]]

    def composites(self, row: int) -> tuple[str, ...]:
        """The names that were saved."""
        return self._told.composites[self.rows.site[row]]

    def cost(self, row: int) -> Cost:
        """What was counted when the trace was saved."""
        return self._told.costs[row]


class SavedValues(ValueStore):
    """Values whose bytes are in a file: checked against their hash when they are first read."""

    def __init__(self, record: Record, ledger: Ledger, told: Told) -> None:
        super().__init__(record, ledger)
        self._told = told

    def read(self, recorded: Recorded, row: int, *, after: bool, what: str) -> Tensor:
        """The value; `MissingValueError` where the file has none."""
        self.check_there(recorded, what)
        try:
            return super().read(recorded, row, after=after, what=what)
        except _UNFIT as error:
            raise DamagedFileError(f"the file is damaged: {what} cannot be put together: {error}") from error

    def why_missing(self, recorded: Recorded) -> str | None:
        """Why the file has no elements of a tensor."""
        return self._told.lost.get(id(recorded))

    def check_unchanged(self, tensor: Tensor, row: int, what: str) -> None:
        """Raise if a loaded tensor was written into since it was loaded."""
        if version_of(tensor) != self._told.versions.get(id(tensor), version_of(tensor)):
            raise OverwrittenError(
                f"the value of {what} was changed in place after it was loaded; clone it before it is "
                "changed, or load the trace again"
            )

    def check_bytes(self, tensor: Tensor, what: str) -> None:
        """Raise `DamagedFileError` unless the bytes are those that were written."""
        storage = self._told.storage_of.get(storage_key(tensor))
        if storage is not None:
            self._told.blobs.verify(storage, what)

    def device(self, seen: Recorded) -> torch.device:
        """Where the value was in the run; it is on the CPU now."""
        return self._told.devices.get(id(seen), seen.device)

    def requires_grad(self, tensor: Recorded, row: int) -> bool:
        """Whether the value needed a gradient in the run."""
        return self._told.requires_grad[id(tensor), row]

    def gradient_edge(self, tensor: Recorded, row: int, *, what: str) -> GradientEdge | None:
        """None; where there was one, `NotSavedError`: a file holds no autograd graph."""
        if self.requires_grad(tensor, row):
            raise NotSavedError(
                f"the place of {what} in the autograd graph is not in a file; trace the model again"
            )
        return None
