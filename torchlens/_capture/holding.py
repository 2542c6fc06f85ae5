"""How the rows of a capture hold tensors: all of them alive, or only those that are chosen.

Rows that hold every tensor need no more than their ids: what is held cannot be freed, so an id cannot come to
mean another object. Where values are not kept, a weak reference tells whether a tensor is still the one that
was met, and the rows hold ghosts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias, cast
from weakref import ref

import torch
from torch import Tensor

from torchlens._capture.choosing import Chooser
from torchlens._capture.placing import Copy, Placing
from torchlens._records import Side
from torchlens._values.geometry import Looks, storage_key
from torchlens._values.ghost import Ghost, Recorded, StorageKey, Stored
from torchlens._values.plain import SCALARS
from torchlens._values.storage_index import Index, StorageIndex
from torchlens._values.unseen import unseen
from torchlens._values.versions import any_moved, gradient_edge_of, version_of

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
            if known is tensor and (slot := _slot(self.rows[row], tensor)) is not None:
                return row, slot
        return None


_FRESH = 16 << 20
"""Bytes of new storages after which those that are gone are looked for. What is left of one, some hundred
bytes, lies in the memory that it had, which the heap can't give to the next tensor of that size."""
_SHARE = 4096
"""What a storage counts for besides its bytes."""
_expired = cast("Callable[[StorageKey], bool]", torch.UntypedStorage._expired)
_free_weak = cast("Callable[[StorageKey], None]", torch.UntypedStorage._free_weak_ref)

_Entry: TypeAlias = "tuple[ref[Tensor] | None, Recorded]"
"""A tensor, or None where the capture holds it; and what rows hold for it."""


class GhostsHeld:
    """Rows hold ghosts. What is kept besides is kept by those ghosts."""

    def __init__(self, rows: Rows, placing: Placing, *, keep_connected: bool = False) -> None:
        self._keep_connected = keep_connected
        """Whether a kept value stays part of the autograd graph when something is written over it."""
        self.rows = rows
        self._placing = placing
        self._chooser: Chooser | None = None
        self.known: set[int] = set()  # stays empty: each tensor is looked up
        self.is_whole = False
        self.whole: type | None = None
        self._met: dict[int, _Entry] = {}
        self._looks = Looks()
        self._kept: dict[StorageKey, list[tuple[int, Tensor]]] = {}
        self._connected: dict[StorageKey, list[Ghost]] = {}
        self._kept_anyway: list[int] = []
        """Rows of outputs that are kept though nobody named them."""
        self._on: dict[StorageKey, list[Ghost]] = {}
        """The ghosts on each storage. A weak reference keeps its address from being used again."""
        self._sizes: dict[StorageKey, int] = {}
        self._fresh = self._alive = 0
        """Bytes of the storages met since those that are gone were forgotten, and of those alive then."""

    @property
    def num_rows(self) -> int:
        return len(self.rows)

    def recorded(self, tensor: Tensor) -> Recorded | None:
        entry = self._met.get(id(tensor))
        return entry[1] if entry is not None and (entry[0] is None or entry[0]() is tensor) else None

    def args(self, args: tuple[Any, ...], frame: Any, meet: Meet) -> tuple[Any, ...]:
        get = self._met.get
        return tuple(
            [
                entry[1]
                if (entry := get(id(arg))) is not None and (entry[0] is None or entry[0]() is arg)
                else arg
                if type(arg) in SCALARS
                else meet(arg, frame)
                for arg in args
            ]
        )

    def append(self, head: tuple[Any, ...], out: Any, duration: int = 0, side: Side = None) -> int:
        row = len(self.rows)
        if type(out) is tuple:
            outs = cast("tuple[Tensor, ...]", out)
            held: Any = tuple([self._give(tensor, row) for tensor in outs])
            version: Any = tuple(map(version_of, outs))
        else:
            outs = (cast("Tensor", out),)
            held, version = self._give(outs[0], row), version_of(outs[0])
        self.rows.append((*head, held, version, duration, side))
        if self._chooser is not None:
            self._chooser.made(row, outs)
        return row

    def close(self) -> None:
        self._chooser = None
        self._met.clear()
        self._kept.clear()
        self._connected.clear()
        for key in self._on:
            _free_weak(key)
        self._on.clear()

    def may_have_changed(self) -> bool:
        return bool(self._kept)

    def choose_by(self, chooser: Chooser) -> None:
        self._chooser = chooser

    def place(self, row: int, slot: int, tensor: Tensor) -> None:
        ghost = self._ghost(row, slot)
        if ghost is None or ghost.kept is not None:
            return
        self._hold(ghost, self._put(row, slot, tensor))

    def _put(self, row: int, slot: int, tensor: Tensor) -> Tensor | Stored:
        return self._placing.put(tensor, row, slot, len(self.rows) - 1)

    def _hold(self, ghost: Ghost, kept: Tensor | Stored) -> None:
        ghost.kept = kept
        if isinstance(kept, Tensor):  # what a write overwrites of it is saved from now on
            self._kept.setdefault(ghost.key, []).append((ghost.row, kept))
            if self._keep_connected:
                self._connected.setdefault(ghost.key, []).append(ghost)

    def _connect(self, key: StorageKey) -> None:
        """Copy the kept values on a storage that is about to change, each with its place in the graph."""
        for ghost in self._connected.pop(key, ()):
            tensor = ghost.kept
            if isinstance(tensor, Tensor) and tensor.requires_grad:
                with unseen(), torch.enable_grad():
                    edge = gradient_edge_of(tensor)
                    ghost.kept = Copy(tensor.clone(), len(self.rows) - 1, edge)
                self._kept[key] = [pair for pair in self._kept.get(key, ()) if pair[1] is not tensor]
        if not self._kept.get(key, True):  # the copies are enough: nothing need be saved of it
            del self._kept[key]

    def drop(self, row: int, slot: int) -> None:
        ghost = self._ghost(row, slot)
        if ghost is not None:
            kept = ghost.kept
            self._kept[ghost.key] = [pair for pair in self._kept.get(ghost.key, ()) if pair[1] is not kept]
            if not self._kept[ghost.key]:
                del self._kept[ghost.key]
            ghost.forget()

    def _ghost(self, row: int, slot: int) -> Ghost | None:
        """What a row gave; None for a parameter, which is always kept."""
        held: object = _outs(self.rows[row])[slot]
        return held if isinstance(held, Ghost) else None

    def repeat(self, head: tuple[Any, ...], held: Recorded, tensor: Tensor) -> int:
        row = len(self.rows)
        if isinstance(held, Ghost):  # one of its own: it is kept whether or not the op's value is
            held = Ghost(held.look, row, held.key, None)
        self.rows.append((*head, held, version_of(tensor), 0, None))
        if self._chooser is not None:
            self._chooser.made(row, (tensor,))
        if isinstance(held, Ghost) and (held.kept is None or self._placing.can_lose):
            self._hold(held, tensor if self._placing.can_lose else self._put(row, 0, tensor))
            self._kept_anyway.append(row)
        return row

    def drop_outputs(self) -> None:
        """Keep what the model gave so far no longer, but for what is meant to be kept."""
        for row in self._kept_anyway:
            self.drop(row, 0)
        self._kept_anyway.clear()

    def take(self, tensor: Tensor, *, lasting: bool = False) -> Recorded:
        if lasting:
            self._met[id(tensor)] = None, tensor
            return tensor
        return self._give(tensor, len(self.rows))

    def take_all(self, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            self.take(tensor, lasting=True)

    def keeps(self, key: StorageKey) -> bool:
        return key in self._kept

    def kept_on(self, key: StorageKey) -> Sequence[tuple[int, Tensor]]:
        return self._kept.get(key, ())

    def described(self, tensor: Tensor) -> Ghost:
        return Ghost(self._looks.of(tensor), len(self.rows), storage_key(tensor), None)

    def note_lent(self, tensor: Tensor) -> None:
        self._placing.lent(tensor)

    def note_writes(self, tensors: Sequence[Tensor]) -> None:
        for tensor in tensors:
            self._placing.overwritten(tensor)
            if self._keep_connected:
                self._connect(storage_key(tensor))

    def known_on(self, key: StorageKey) -> Sequence[Ghost]:
        return self._on.get(key, ())

    def maker(self, tensor: Tensor) -> tuple[int, int] | None:
        ghost = self.recorded(tensor)
        if not isinstance(ghost, Ghost) or ghost.row >= len(self.rows):
            return None
        slot = _slot(self.rows[ghost.row], ghost)
        return None if slot is None else (ghost.row, slot)

    def first_on_each(self, since: int) -> Iterator[Tensor]:
        return iter({storage_key(tensor): tensor for tensor, _ in self._live()}.values())

    @property
    def num_storages(self) -> int:
        return 0  # they come and go

    def _give(self, tensor: Tensor, row: int) -> Recorded:
        """What rows hold for a tensor that a row gives: a new ghost, or a parameter itself."""
        entry = self._met.get(id(tensor))
        if entry is not None and entry[0] is None:
            return entry[1]
        if type(tensor) is not Tensor:
            with torch._C.DisableTorchFunction():  # a subclass must not see our reads
                look = self._looks.of(tensor)
        else:
            look = self._looks.of(tensor)
        before = entry[1] if entry is not None and entry[0] is not None and entry[0]() is tensor else None
        ghost = Ghost(look, row, self._storage_of(tensor), cast("Ghost | None", before))
        self._met[id(tensor)] = ref(tensor), ghost
        if ghost.key > 0:
            self._on[ghost.key].append(ghost)
        return ghost

    def _storage_of(self, tensor: Tensor) -> StorageKey:
        """What names the tensor's storage, for as long as the storage lives."""
        try:
            storage = tensor.untyped_storage()
        except (RuntimeError, NotImplementedError, ValueError):
            return -id(tensor)
        key = storage._cdata
        if key not in self._on:
            if self._fresh > max(_FRESH, self._alive):
                self._sweep()
            storage._weak_ref()
            self._on[key] = []
            self._sizes[key] = size = storage.nbytes() + _SHARE
            self._fresh += size
        return key

    def _sweep(self) -> None:
        """Forget the storages that are gone."""
        for key in [key for key in self._on if _expired(key)]:
            _free_weak(key)
            del self._on[key], self._sizes[key]
        self._fresh, self._alive = 0, sum(self._sizes.values())

    def _live(self) -> Iterator[tuple[Tensor, Recorded]]:
        """Every known tensor that still lives."""
        for held, recorded in list(self._met.values()):
            tensor = cast("Tensor", recorded) if held is None else held()
            if tensor is not None:
                yield tensor, recorded


def _outs(row: tuple[Any, ...]) -> tuple[object, ...]:
    out: object = row[7]
    return cast("tuple[object, ...]", out) if type(out) is tuple else (out,)


def _slot(row: tuple[Any, ...], held: object) -> int | None:
    """As which of its outputs a row gave something."""
    return next((slot for slot, out in enumerate(_outs(row)) if out is held), None)
