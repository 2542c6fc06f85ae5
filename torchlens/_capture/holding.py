"""How the rows of a capture hold tensors: all of them alive, or only those that are chosen.

Rows that hold every tensor need no more than their ids: what is held cannot be freed, so an id cannot come to
mean another object. Where values are not kept, a weak reference tells whether a tensor is still the one that
was met, and the rows hold ghosts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias, cast

from torch import Tensor

from torchlens._capture.choosing import Chooser
from torchlens._records import Side
from torchlens._values.geometry import storage_key
from torchlens._values.ghost import Recorded, StorageKey
from torchlens._values.plain import SCALARS
from torchlens._values.storage_index import Index, StorageIndex
from torchlens._values.versions import any_moved, version_of

Rows: TypeAlias = list[tuple[Any, ...]]
Meet: TypeAlias = Callable[[Any, Any], Any]
"""Makes an argument plain, given the frame whose names its tensors may go by."""


class Holding(Index, Protocol):
    """The rows of one capture as they grow, and what they hold for each tensor."""

    rows: Rows
    known: set[int]
    """Ids of tensors that rows hold as they are: no more need be asked of them."""
    is_whole: bool
    """Whether rows hold every tensor as it is."""
    whole: type | None
    """The type of outputs that may be appended as they are, only their id noted; None: no type."""

    def recorded(self, tensor: Tensor) -> Recorded | None:
        """What rows hold for a tensor; None for one that was not met."""
        ...

    def args(self, args: tuple[Any, ...], frame: Any, meet: Meet) -> tuple[Any, ...]:
        """Arguments as rows hold them; `meet` gives what is held for one that is no known tensor."""
        ...

    def append(self, head: tuple[Any, ...], out: Any, duration: int = 0, side: Side = None) -> int:
        """Append the row that begins with `head` and gives a tensor, or a tuple of them. Its number."""
        ...

    def repeat(self, head: tuple[Any, ...], held: Recorded, tensor: Tensor) -> int:
        """Append a row that gives what another gave, as it is now, and keep that."""
        ...

    def drop_outputs(self) -> None:
        """Keep what the model gave so far no longer, but for what is meant to be kept."""
        ...

    def take(self, tensor: Tensor, *, lasting: bool = False) -> Recorded:
        """Know a tensor from now on without a row; a `lasting` one outlives the capture by itself."""
        ...

    def choose_by(self, chooser: Chooser) -> None:
        """Ask what to keep of each row."""
        ...

    def place(self, row: int, slot: int, tensor: Tensor) -> None:
        """Keep what a row gave, as it is now."""
        ...

    def drop(self, row: int, slot: int) -> None:
        """Keep it no longer."""
        ...

    def note_writes(self, tensors: Sequence[Tensor]) -> None:
        """Their storages are about to be written."""
        ...

    def note_lent(self, tensor: Tensor) -> None:
        """The tensor's memory was handed to code that writes unseen."""
        ...

    def take_all(self, tensors: Iterable[Tensor]) -> None:
        """Know tensors that outlive the capture."""
        ...

    def known_on(self, key: StorageKey) -> Sequence[Recorded]:
        """What rows hold for the tensors on this storage, oldest first."""
        ...

    def maker(self, tensor: Tensor) -> tuple[int, int] | None:
        """The last row that gave the tensor, and as which of its outputs."""
        ...

    def close(self) -> None:
        """Let go of the chooser and of what is known of each tensor; the rows stay."""
        ...

    def may_have_changed(self) -> bool:
        """Whether a version counter of a value that rows hold has moved since its row, as far as is cheap."""
        ...

    def first_on_each(self, since: int) -> Iterator[Tensor]:
        """A known tensor on each storage, without the `since` storages that were met first."""
        ...

    @property
    def num_storages(self) -> int:
        """How many storages were met, as of the last question."""
        ...


class AllHeld(StorageIndex):
    """Rows hold every tensor."""

    def __init__(self, rows: Rows, *, watched: bool = False) -> None:
        super().__init__(rows)
        self.rows = rows
        self.known: set[int] = set()
        self.is_whole = True
        self.whole: type | None = None if watched else Tensor
        self._chooser: Chooser | None = None

    def recorded(self, tensor: Tensor) -> Tensor | None:
        return tensor if id(tensor) in self.known else None

    def args(self, args: tuple[Any, ...], frame: Any, meet: Meet) -> tuple[Any, ...]:
        known = self.known
        return tuple([arg if id(arg) in known or type(arg) in SCALARS else meet(arg, frame) for arg in args])

    def append(self, head: tuple[Any, ...], out: Any, duration: int = 0, side: Side = None) -> int:
        row = len(self.rows)
        outs = cast("tuple[Tensor, ...]", out if isinstance(out, tuple) else (out,))
        self.known.update(map(id, outs))
        versions = tuple(map(version_of, outs))
        version: Any = versions if isinstance(out, tuple) else versions[0]
        self.rows.append((*head, cast("object", out), version, duration, side))
        if self._chooser is not None:
            self._chooser.made(row, outs)
        return row

    def close(self) -> None:
        self._chooser = None

    def may_have_changed(self) -> bool:
        return any_moved((row[7], row[8]) for row in self.rows)

    def choose_by(self, chooser: Chooser) -> None:
        self._chooser = chooser

    def place(self, row: int, slot: int, tensor: Tensor) -> None:
        """It is kept already."""

    def drop(self, row: int, slot: int) -> None:
        """All are kept."""

    def repeat(self, head: tuple[Any, ...], held: Recorded, tensor: Tensor) -> int:
        return self.append(head, tensor)

    def drop_outputs(self) -> None:
        """The rows keep all."""

    def take(self, tensor: Tensor, *, lasting: bool = False) -> Tensor:
        self.known.add(id(tensor))
        return tensor

    def take_all(self, tensors: Iterable[Tensor]) -> None:
        self.known.update(map(id, tensors))

    def note_writes(self, tensors: Sequence[Tensor]) -> None:
        """The rows hold what was there."""

    def note_lent(self, tensor: Tensor) -> None:
        """The ledger watches it."""

    def known_on(self, key: StorageKey) -> Sequence[Tensor]:
        return [tensor for _, tensor in self.tensors_on(key)]

    def maker(self, tensor: Tensor) -> tuple[int, int] | None:
        for row, known in reversed(self.tensors_on(storage_key(tensor))):
            if known is tensor and (slot := slot_of(self.rows[row], tensor)) is not None:
                return row, slot
        return None


def outs_of(row: tuple[Any, ...]) -> tuple[object, ...]:
    out: object = row[7]
    return cast("tuple[object, ...]", out) if type(out) is tuple else (out,)


def slot_of(row: tuple[Any, ...], held: object) -> int | None:
    """As which of its outputs a row gave something."""
    return next((slot for slot, out in enumerate(outs_of(row)) if out is held), None)
