"""One recorded call, made again: its inputs from the edges, its settings and random state as recorded."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from torchlens._replay.pieces import Piece, Pieces, StandIn, are_foreign, cover, is_plain, is_whole, whole
from torchlens._replay.reasons import why_not
from torchlens._replay.settings import as_recorded, generators_at
from torchlens._trace.reader import TraceReader
from torchlens._values.geometry import storage_key
from torchlens._values.ghost import Ghost, StorageKey
from torchlens._values.lineage import HOST, positions
from torchlens._values.plain import plain, recorded_in, tensors_in
from torchlens._values.versions import version_of
from torchlens.errors import TorchLensError


class CannotReplayError(TorchLensError):
    """A call cannot be made again from what the trace holds; the message says why."""


@dataclass(slots=True)
class Written:
    """What a replayed call left in a tensor that it wrote without giving it back."""

    value: Tensor
    place: Tensor
    """The written tensor's geometry in the run."""


@dataclass(slots=True)
class Replayed:
    """What a replayed call gave: a tensor for each op of its row, and those it wrote besides."""

    outs: list[Tensor]
    written: list[Written]
    wrote_unannounced: bool
    """Whether it wrote into an argument that the record does not say it writes."""


@dataclass(slots=True)
class _Inputs:
    by_object: dict[int, Tensor]
    """By the id of the recorded tensor."""
    only_read: dict[int, Tensor]
    """Those of them that the call does not write, as far as the record knows."""
    by_storage: dict[StorageKey, StandIn]
    """What stands in for each storage that the call writes."""


class Replay:
    """Makes the calls of one trace again, any of them, in any order, and leaves the trace as it is."""

    def __init__(self, reader: TraceReader) -> None:
        self._reader = reader
        self._rows = reader.rows
        self._pieces = Pieces(reader)

    def why_not(self, row: int) -> str | None:
        """A reason for which a row's call cannot be made again, as far as it shows beforehand."""
        rows = self._rows
        for held in recorded_in([rows.args[row], rows.kwargs[row], rows.out[row]]):
            if isinstance(held, Ghost):
                return "not every value that it took and gave was kept"
            ran_on = self._reader.values.device(held)
            if ran_on != held.device and not held.is_meta:
                return f"it ran on {ran_on}, and its values are on {held.device} now"
        return why_not(rows, row, self._function(row))

    def parents(self, row: int) -> list[int]:
        """The ops behind the tensor arguments of a row's call, in capture order."""
        edges = self._edges(row)
        return sorted({op for position, ops in edges.items() if position != HOST for op in ops})

    def run(self, row: int, edited: dict[int, Tensor] | None = None) -> Replayed:
        """Make a row's call again; `edited` gives some of its parents another value.

        Raises `CannotReplayError`, `OverwrittenError` where a value is gone, and what the call itself raises.
        """
        reason = self.why_not(row)
        if reason is not None:
            raise CannotReplayError(reason)
        func, args, kwargs = self._function(row), self._rows.args[row], self._rows.kwargs[row] or {}
        pieces = self._pieces.editing(edited) if edited else self._pieces
        with ExitStack() as settings:
            settings.enter_context(as_recorded(self._reader.record.contexts[self._rows.context[row]]))
            inputs = self._inputs(row, pieces)
            new_args, new_kwargs = plain([args, kwargs], lambda tensor: inputs.by_object[id(tensor)])
            states = self._reader.record.generators.get(row)
            if states is not None:
                settings.enter_context(generators_at(states, kwargs.get("generator")))
            before = {at: version_of(tensor) for at, tensor in inputs.only_read.items()}
            result = func(*new_args, **new_kwargs)
        wrote = any(version_of(tensor) != before[at] for at, tensor in inputs.only_read.items())
        return Replayed(self._outs(row, result, inputs), self._written(row, inputs), wrote)

    def _function(self, row: int) -> Any:
        """What to call; a buffer version and an output are the tensor they were made of."""
        return _same if self._rows.kind[row] in ("buffer", "output") else self._rows.func[row]

    def _edges(self, row: int) -> dict[str, list[int]]:
        """The ops behind each argument position: those behind any output of the call."""
        edges: dict[str, list[int]] = {}
        for op in self._reader.ops_of_row(row):
            for position, parent in self._reader.lineage.parents[op]:
                edges.setdefault(position, []).append(parent)
        return {position: sorted(set(parents)) for position, parents in edges.items()}

    def _inputs(self, row: int, pieces: Pieces) -> _Inputs:
        edges, params = self._edges(row), dict(self._reader.lineage.params[row])
        tensors: dict[int, Tensor] = {}
        behind: dict[int, list[Piece]] = {}
        needs_grad: set[int] = set()
        writes = {storage_key(write.tensor) for write in pieces.writes_of_row.get(row, ())}
        for position, tensor in positions(self._rows.args[row], self._rows.kwargs[row]):
            if id(tensor) in tensors:
                continue
            tensor = whole(tensor)
            tensors[id(tensor)] = tensor
            parents, param = edges.get(position, []), params.get(position)
            behind[id(tensor)] = self._behind(row, tensor, parents, param, pieces)
            if self._needs_grad(parents, param) and not self._is_reshaped(tensor, row):
                needs_grad.add(id(tensor))
        inputs = _Inputs({}, {}, {})
        reach = self._reach(row, list(tensors.values()))
        for key in writes:
            together = [at for at in tensors if storage_key(reach[at][0]) == key]
            _share(together, reach, behind, inputs, key)
        for at in tensors:
            if at not in inputs.by_object:
                shared = is_torchs(self._function(row))
                inputs.by_object[at] = _apart(behind[at], reach[at], at in needs_grad, shared=shared)
                if not self._is_reshaped(tensors[at], row):
                    inputs.only_read[at] = inputs.by_object[at]
        return inputs

    def _reach(self, row: int, tensors: list[Tensor]) -> dict[int, list[Tensor]]:
        """For each argument its geometry before the call, then those outputs that are views of it."""
        values = self._reader.values
        out = self._rows.out[row]
        given = cast("tuple[Tensor, ...]", out) if type(out) is tuple else (out,)
        outs = [whole(values.geometry(tensor, row, after=True)) for tensor in given]
        reach: dict[int, list[Tensor]] = {}
        for tensor in tensors:
            seen = whole(values.geometry(tensor, row, after=False))
            reach[id(tensor)] = [seen, *(view for view in outs if storage_key(view) == storage_key(seen))]
        return reach

    def _behind(
        self, row: int, tensor: Tensor, parents: Sequence[int], param: int | None, pieces: Pieces
    ) -> list[Piece]:
        seen = whole(self._reader.values.geometry(tensor, row, after=False))
        key = storage_key(seen)
        found = [piece for op in parents for piece in pieces.of_op(op, key)]
        if param is not None and not (found and cover(found, seen)):
            found.insert(0, pieces.of_param(param, tensor, row))
        if not found:
            raise CannotReplayError("an argument has no origin in the graph")
        return found

    def _needs_grad(self, parents: Sequence[int], param: int | None) -> bool:
        reader = self._reader
        if param is not None and reader.record.structure.held_params[param][0].requires_grad:
            return True
        made = ((reader.numbers.rows[op], reader.numbers.slots[op]) for op in parents)
        return any(reader.values.requires_grad(reader.tensor(row, slot), row) for row, slot in made)

    def _is_reshaped(self, tensor: Tensor, row: int) -> bool:
        """Whether a row's call changes the tensor's shape in place; a leaf with gradients must not be."""
        return any(change.row == row for change in self._reader.ledger.metadata.get(id(tensor), ()))

    def _outs(self, row: int, result: Any, inputs: _Inputs) -> list[Tensor]:
        recorded = self._rows.out[row]
        given = cast("tuple[Tensor, ...]", recorded) if type(recorded) is tuple else (recorded,)
        outs = tensors_in(result)  # the others are tensors that the call wrote without giving them back
        return outs + [inputs.by_object[id(tensor)] for tensor in given[len(outs) :]]

    def _written(self, row: int, inputs: _Inputs) -> list[Written]:
        found: list[Written] = []
        for write in self._pieces.writes_of_row.get(row, ()):
            stand_in = inputs.by_storage.get(storage_key(write.tensor))
            if stand_in is not None:
                written = whole(write.tensor)
                found.append(Written(stand_in.view(written), written))
        return found


def _same(tensor: Tensor) -> Tensor:
    return tensor


def _share(
    together: list[int],
    reach: dict[int, list[Tensor]],
    behind: dict[int, list[Piece]],
    inputs: _Inputs,
    key: StorageKey,
) -> None:
    """Arguments on a storage that the call writes: views of one copy of it."""
    if not together:
        return
    if not all(is_plain(reach[at][0]) for at in together):
        inputs.by_object.update((at, _the_one(behind[at], reach[at][0]).clone()) for at in together)
        return
    if key < 0 or any(are_foreign(behind[at], reach[at][0]) for at in together):
        inputs.by_object.update((at, behind[at][-1].value.clone()) for at in together)
        return
    pieces = [piece for at in together for piece in behind[at]]
    stand_in = StandIn.of(pieces, [view for at in together for view in reach[at]])
    inputs.by_object.update((at, stand_in.view(reach[at][0])) for at in together)
    inputs.by_storage[key] = stand_in


def is_torchs(func: Any) -> bool:
    """Whether a function is torch's own, which can be trusted to write only what it says."""
    if isinstance(func, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        name: str = func._qualified_op_name if isinstance(func, torch._ops.OpOverloadPacket) else func.name()
        return name.startswith(("aten::", "prims::"))
    if func is _same or not hasattr(func, "__module__") or func.__module__ is None:  # C's methods have none
        return True
    return func.__module__.partition(".")[0] in ("torch", "builtins")


def _apart(pieces: list[Piece], reach: list[Tensor], needs_grad: bool, *, shared: bool) -> Tensor:
    """An argument that the call only reads; `reach` begins with its geometry.

    Unless the memory may be `shared` with what the trace and the model hold, it is a copy.
    """
    seen = reach[0]
    if not is_plain(seen):
        one = _the_one(pieces, seen)
        return one if shared else one.clone()
    if is_whole(pieces, reach) or storage_key(seen) < 0 or are_foreign(pieces, seen):
        value = pieces[-1].value
        if type(value) not in (Tensor, torch.nn.Parameter):
            return value  # a subclass decides itself what `detach` is
        value = value.data  # unlike what `detach` gives, it counts its changes for itself
        if not shared and storage_key(seen) > 0:
            value = StandIn.of([Piece(0, value, seen)], [seen]).view(seen)
        elif not shared:
            value = value.clone()
    else:
        value = StandIn.of(pieces, reach).view(seen)
    floating = value.is_floating_point() or value.is_complex()
    if needs_grad and floating and not value.is_inference():
        value.requires_grad_(True)  # kernels choose by it, also where gradients are off
    return value


def _the_one(pieces: list[Piece], seen: Tensor) -> Tensor:
    """The value of a tensor that cannot be put together from several, or from one of another kind."""
    place = pieces[0].place
    if len(pieces) != 1 or (place.is_nested, place.layout) != (seen.is_nested, seen.layout):
        raise CannotReplayError("an argument of its kind cannot be put together from what several ops wrote")
    return pieces[0].value
