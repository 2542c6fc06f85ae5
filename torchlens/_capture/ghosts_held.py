"""Rows that hold ghosts: tensors are known by weak references, and storages by their addresses.

What a call gives is looked at while it lives: shape, dtype, storage. A weak reference to each storage keeps
its address from being used again, so that views are told of what they are of, also when that is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias, cast
from weakref import ref

import torch
from torch import Tensor

from torchlens._capture.choosing import Chooser
from torchlens._capture.holding import Meet, Rows, outs_of, slot_of
from torchlens._capture.placing import Copy, Placing
from torchlens._records import Side
from torchlens._unseen import unseen
from torchlens._values.geometry import Looks, storage_key
from torchlens._values.ghost import Ghost, Recorded, StorageKey, Stored
from torchlens._values.plain import SCALARS
from torchlens._values.versions import gradient_edge_of, version_of

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
        self._on: dict[StorageKey, Ghost] = {}
        """The newest ghost on each storage. A weak reference keeps its address from being used again."""
        self._fresh = self._alive = 0
        """Bytes of the storages met since those that are gone were forgotten, and of those alive then."""

    @property
    def num_rows(self) -> int:
        return len(self.rows)

    def recorded(self, tensor: Tensor) -> Recorded | None:
        entry = self._met.get(id(tensor))
        return entry[1] if entry is not None and (entry[0] is None or entry[0]() is tensor) else None

    def args(self, args: tuple[Any, ...], frame: Any, meet: Meet) -> tuple[Any, ...]:
        get, found = self._met.get, list(args)
        for at, arg in enumerate(args):
            if type(arg) in SCALARS:
                continue
            entry = get(id(arg))
            if entry is not None and (entry[0] is None or entry[0]() is arg):
                found[at] = entry[1]
            else:
                found[at] = meet(arg, frame)
        return tuple(found)

    def append(self, head: tuple[Any, ...], out: Any, duration: int = 0, side: Side = None) -> int:
        row = len(self.rows)
        if type(out) is tuple:
            outs = cast("tuple[Tensor, ...]", out)
            held: Any = tuple([self._give(tensor, row) for tensor in outs])
            version: Any = tuple(map(version_of, outs))
        else:
            outs = (cast("Tensor", out),)
            held, version = self._give(out, row), version_of(out)
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
        kept = (pair for pairs in self._kept.values() for pair in pairs)
        noted = ((tensor, self.rows[row][8]) for row, tensor in kept)
        return any(type(version) is tuple or version_of(tensor) != version for tensor, version in noted)

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
        held: object = outs_of(self.rows[row])[slot]
        return held if isinstance(held, Ghost) else None

    def repeat(self, head: tuple[Any, ...], held: Recorded, tensor: Tensor) -> int:
        row = len(self.rows)
        if isinstance(held, Ghost):  # one of its own: it is kept whether or not the op's value is
            held = Ghost(held.look, row, held.key, None, None)
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
        return Ghost(self._looks.of(tensor), len(self.rows), storage_key(tensor), None, None)

    def note_lent(self, tensor: Tensor) -> None:
        self._placing.lent(tensor)

    def note_writes(self, tensors: Sequence[Tensor]) -> None:
        for tensor in tensors:
            self._placing.overwritten(tensor)
            if self._keep_connected:
                self._connect(storage_key(tensor))

    def known_on(self, key: StorageKey) -> Sequence[Ghost]:
        found: list[Ghost] = []
        ghost = self._on.get(key)
        while ghost is not None:
            found.append(ghost)
            ghost = ghost.under
        return found[::-1]

    def maker(self, tensor: Tensor) -> tuple[int, int] | None:
        ghost = self.recorded(tensor)
        if not isinstance(ghost, Ghost) or ghost.row >= len(self.rows):
            return None
        slot = slot_of(self.rows[ghost.row], ghost)
        return None if slot is None else (ghost.row, slot)

    def first_on_each(self, since: int) -> Iterator[Tensor]:
        return iter({storage_key(tensor): tensor for tensor, _ in self._live()}.values())

    @property
    def num_storages(self) -> int:
        return 0  # they come and go

    def _give(self, tensor: Tensor, row: int) -> Recorded:
        """What rows hold for a tensor that a row gives: a new ghost, or a parameter itself."""
        if type(tensor) is Tensor:
            return self._give_plain(tensor, row)
        with torch._C.DisableTorchFunction():  # a subclass must not see our reads
            return self._give_plain(tensor, row)

    def _give_plain(self, tensor: Tensor, row: int) -> Recorded:
        # one function, because this is done for each op: in parts it takes twice as long
        at = id(tensor)
        entry = self._met.get(at)
        before = None
        if entry is not None:
            met = entry[0]
            if met is None:
                return entry[1]
            if met() is tensor:
                before = entry[1]
        look = self._looks.of(tensor)
        on = None
        try:
            storage = tensor.untyped_storage()
        except (RuntimeError, NotImplementedError, ValueError):
            key = -at
        else:
            key = storage._cdata
            on = self._on.get(key)
            if on is None:
                if self._fresh > _FRESH and self._fresh > self._alive:
                    self._sweep()
                storage._weak_ref()
                self._fresh += look.nbytes + _SHARE
        ghost = Ghost(look, row, key, before, on)
        if key > 0:
            self._on[key] = ghost
        self._met[at] = ref(tensor), ghost
        return ghost

    def _sweep(self) -> None:
        """Forget the storages that are gone."""
        for key in [key for key in self._on if _expired(key)]:
            _free_weak(key)
            del self._on[key]
        self._fresh, self._alive = 0, sum(ghost.look.nbytes + _SHARE for ghost in self._on.values())

    def _live(self) -> Iterator[tuple[Tensor, Recorded]]:
        """Every known tensor that still lives."""
        for held, recorded in list(self._met.values()):
            tensor = cast("Tensor", recorded) if held is None else held()
            if tensor is not None:
                yield tensor, recorded
