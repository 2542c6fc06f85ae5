"""An argument put together from what its parents gave: through the edges, never from a copy of its own.

A tensor that a call reads was made by one op and partly overwritten by others. Each of them contributes a
*piece*: a value, and the elements of the storage that it fills. Laid over each other, oldest first, they are
the argument. Where an edge is missing or wrong, so is the argument.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from torchlens._trace.reader import TraceReader
from torchlens._values.geometry import is_wrapper, region_of, same_geometry, storage_key
from torchlens._values.ghost import Recorded, StorageKey
from torchlens._values.ledger import Write
from torchlens._values.region import last_writers

_POISON = 0xFF
"""Fills what no edge accounts for: NaN as a float of any width, -1 as an integer."""
_ALIGNMENT = 64


@dataclass(slots=True)
class Piece:
    """What one op or parameter contributes to an argument."""

    op: int
    """-1 for a parameter, which is older than every op."""
    value: Tensor
    place: Tensor
    """A tensor with the geometry of `value` on the storage of the run."""


class Pieces:
    """Finds the pieces of one trace. `edited` gives some ops another value than the recorded one."""

    def __init__(self, reader: TraceReader, edited: Mapping[int, Tensor] | None = None) -> None:
        self._reader = reader
        self._edited = edited or {}

    @cached_property
    def writes_of_row(self) -> dict[int, list[Write]]:
        """The writes that each row's call made."""
        found: dict[int, list[Write]] = {}
        for writes in self._reader.ledger.writes.values():
            for write in writes:
                if write.slot is not None:
                    found.setdefault(write.row, []).append(write)
        return found

    @cached_property
    def _param_of_tensor(self) -> dict[int, int]:
        """The same as the structure's, with other tensor objects on the storage of a parameter."""
        found = dict(self._reader.record.structure.param_of_tensor)
        for _, alias, original in self._reader.record.aliases:
            if id(original) in found:
                found.setdefault(id(alias), found[id(original)])
        return found

    def editing(self, edited: Mapping[int, Tensor]) -> Pieces:
        """The same pieces, with other values for some ops."""
        pieces = Pieces(self._reader, edited)
        vars(pieces)["writes_of_row"] = self.writes_of_row
        return pieces

    def of_op(self, op: int, key: StorageKey) -> list[Piece]:
        """What an op wrote into a storage; where it wrote nothing there, the tensor it gave."""
        reader = self._reader
        row, slot = reader.numbers.rows[op], reader.numbers.slots[op]
        places = [whole(place) for place in self.written_places(op, key)]
        if not places:
            made = reader.tensor(row, slot)
            places = [whole(reader.values.geometry(made, row, after=True))]
            what = reader.op_labels[op]
            values = [reader.values.read(made, row, after=True, what=what)]
        else:
            what = f"what {reader.op_labels[op]} wrote"
            values = [reader.values.read(place, row, after=True, what=what) for place in places]
        if op in self._edited:
            given = whole(reader.values.geometry(reader.tensor(row, slot), row, after=True))
            values = [_seen_through(self._edited[op], given, place) for place in places]
        return [Piece(op, value, place) for value, place in zip(values, places)]

    def written_places(self, op: int, key: StorageKey) -> list[Recorded]:
        """What an op wrote of a storage, each part as a tensor with its geometry."""
        row, slot = self._reader.numbers.rows[op], self._reader.numbers.slots[op]
        writes = [w for w in self.writes_of_row.get(row, ()) if (w.slot or 0) == slot]
        return [w.tensor for w in writes if storage_key(w.tensor) == key]

    def places(self, op: int, key: StorageKey) -> list[Recorded]:
        """The same, or where it wrote nothing there, the tensor that it gave."""
        reader = self._reader
        row, slot = reader.numbers.rows[op], reader.numbers.slots[op]
        made = reader.tensor(row, slot)
        return self.written_places(op, key) or [reader.values.geometry(made, row, after=True)]

    def of_param(self, param: int, tensor: Tensor, row: int) -> Piece:
        """A parameter as it was before a row's call, which was given `tensor`, this or another parameter."""
        if self._param_of_tensor.get(id(tensor)) != param:
            tensor = self._reader.record.structure.held_params[param][0]
        what = self._reader.record.params[param].addresses[0]
        return Piece(-1, self._reader.values.read(tensor, row, after=False, what=what), tensor)


def whole(recorded: Recorded) -> Tensor:
    """The tensor that a row holds; calls whose rows hold none are not made again."""
    assert isinstance(recorded, Tensor)
    return recorded


def is_whole(pieces: Sequence[Piece], seen: Sequence[Tensor]) -> bool:
    """Whether one piece is the argument itself; `seen` is its geometry, then what else the call reaches."""
    if len(pieces) != 1 or not same_geometry(pieces[0].place, seen[0]):
        return False
    if (pieces[0].place.is_conj(), pieces[0].place.is_neg()) != (seen[0].is_conj(), seen[0].is_neg()):
        return False
    return pieces[0].value.dtype == seen[0].dtype and all(cover(pieces, view) for view in seen[1:])


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor is what a storage shows through sizes and strides, and nothing more."""
    strided = tensor.layout is torch.strided and not tensor.is_nested
    return strided and not tensor.is_quantized and not is_wrapper(tensor)


def are_foreign(pieces: Sequence[Piece], seen: Tensor) -> bool:
    """Whether some piece lies in another storage than the argument does."""
    return any(storage_key(piece.place) != storage_key(seen) for piece in pieces)


def cover(pieces: Sequence[Piece], seen: Tensor) -> bool:
    """Whether the pieces fill every element of the argument."""
    return last_writers(region_of(seen), [region_of(piece.place) for piece in reversed(pieces)])[1]


@dataclass(slots=True)
class StandIn:
    """A storage made of pieces, in the place of a storage of the run."""

    storage: torch.UntypedStorage
    first: int
    """The byte of the run's storage that is the first one here."""

    @classmethod
    def of(cls, pieces: Sequence[Piece], reach: Sequence[Tensor]) -> StandIn:
        """Lay the pieces over each other, the oldest first; `reach` is all that a call can see of them."""
        ordered = sorted(
            {(piece.op, id(piece.place)): piece for piece in pieces}.values(), key=lambda p: p.op
        )
        spans = [region_of(tensor).span for tensor in (*reach, *(piece.place for piece in ordered))]
        # whole cache lines are left out, so that kernels meet the alignment they met in the run
        first = min(low for low, _ in spans) // _ALIGNMENT * _ALIGNMENT
        size = max(past for _, past in spans) - first
        poison = torch.full((size,), _POISON, dtype=torch.uint8, device=reach[0].device)
        made = cls(poison.untyped_storage(), first)
        for piece in ordered:
            made.put(piece)
        return made

    def put(self, piece: Piece) -> None:
        """Write a piece where it belongs."""
        target = self.view(piece.place)
        if not region_of(target).may_overlap_itself:
            target.copy_(piece.value)
            return
        # torch refuses to write where one element stands at several places, as in an expanded tensor
        count = self.storage.nbytes() // target.element_size()
        flat = torch.empty(0, dtype=target.dtype, device=target.device).set_(self.storage, 0, (count,), (1,))
        where = torch.arange(count, device=target.device)
        where = where.as_strided(target.shape, target.stride(), target.storage_offset())
        flat[where.reshape(-1)] = piece.value.reshape(-1)

    def view(self, like: Tensor) -> Tensor:
        """What a tensor with the geometry of `like` is here."""
        view = torch.empty(0, dtype=like.dtype, device=like.device)
        offset = int(like.storage_offset()) - self.first // like.element_size()
        view.set_(self.storage, offset, like.shape, like.stride())
        if like.is_conj():
            view = view.conj()
        return torch._neg_view(view) if like.is_neg() else view


def _seen_through(value: Tensor, given: Tensor, place: Tensor) -> Tensor:
    """An edited value of an op as what it wrote: the same elements, or those of them that were written."""
    if same_geometry(given, place):
        return value
    return StandIn.of([Piece(0, value, given)], [place]).view(place)
