"""Reading values: the live tensor while it is the newest version, otherwise rebuilt by undoing writes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import accumulate
from typing import Final, TypeGuard, cast

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from torchlens._records import Record
from torchlens._values.geometry import region_of, storage_key
from torchlens._values.ghost import RECORDED, Ghost, Recorded, StorageKey
from torchlens._values.ledger import Ledger, Write
from torchlens._values.lineage import geometry_at
from torchlens._values.rebuilding import rebuilt, to_undo
from torchlens._values.versions import gradient_edge_of, version_of
from torchlens.errors import MissingValueError, NotSavedError, OverwrittenError

_GET_DATA: Final = vars(torch._C.TensorBase)["data"].__get__


class ValueStore:
    """The values of one record. What a row read is its state `before` the row, what it gave `after` it."""

    def __init__(self, record: Record, ledger: Ledger) -> None:
        self._record = record
        self._ledger = ledger
        self._noted: dict[int, tuple[Tensor, list[tuple[int, int]]]] | None = None
        self._bumps: dict[tuple[StorageKey, int], tuple[list[int], list[int]]] = {}

    @property
    def copied_bytes(self) -> int:
        """Bytes copied during the run because they were about to be overwritten in place."""
        return self._ledger.copied_bytes

    def read(self, recorded: Recorded, row: int, *, after: bool, what: str) -> Tensor:
        """The value of a tensor object before or after a row's call; `what` names it in errors.

        The live tensor itself where nothing was written since, otherwise a detached copy.
        """
        if isinstance(recorded, Ghost):
            kept = recorded.kept
            if kept is None:
                raise NotSavedError(self._not_kept(what))
            if not isinstance(kept, Tensor):
                self._check_unwritten(recorded, kept.row, row, after, what)
                return kept.read(what)
            recorded = kept
        return self._read_live(recorded, row, after, what)

    def _read_live(self, tensor: Tensor, row: int, after: bool, what: str) -> Tensor:
        alias = cast("Tensor", geometry_at(self._ledger, tensor, row, after=after))
        if alias.is_meta:  # there are no elements to change
            return alias
        self._check_storage(alias, what)
        key = storage_key(alias)
        self.check_unchanged(tensor, row, what)
        self.check_bytes(alias, what)
        undo = to_undo(region_of(alias), self._writes_since(key, row, after))
        if not undo:
            return alias
        lost = next((write for write in undo if write.lost is not None), None)
        if lost is not None:
            raise OverwrittenError(
                f"the value of {what} was overwritten in place by row {lost.row}, and not saved before: "
                f"{lost.lost}"
            )
        for write in undo:
            if write.saved is not None:
                self.check_bytes(write.saved, what)
        return rebuilt(alias, undo)

    def _not_kept(self, what: str) -> str:
        options = self._record.options
        return (
            f"the value of {what} was not kept: the run was made with save={options.save}; "
            "name it there too, or leave save= out to keep every value"
        )

    def _check_unwritten(self, ghost: Ghost, put_by: int, row: int, after: bool, what: str) -> None:
        """Raise if something was written between the row after which a value was put by and the row asked."""
        writes = self._ledger.writes.get(ghost.key, ())
        asked = bisect_right(writes, row, key=_row) if after else bisect_left(writes, row, key=_row)
        first, last = sorted([bisect_right(writes, put_by, key=_row), asked])
        between = to_undo(ghost.look.region, (writes[at] for at in range(first, last)))
        if between:
            raise OverwrittenError(
                f"the value of {what} was overwritten in place by row {between[0].row}; only its copy as of "
                f"row {put_by} was kept"
            )

    def _writes_since(self, key: StorageKey, row: int, after: bool) -> Iterator[Write]:
        """The writes into a storage that the value at a row must not show, oldest first."""
        writes = self._ledger.writes.get(key)
        if not writes:
            return iter(())
        first = bisect_right(writes, row, key=_row) if after else bisect_left(writes, row, key=_row)
        return (writes[at] for at in range(first, len(writes)))

    def geometry(self, tensor: Recorded, row: int, *, after: bool) -> Recorded:
        """The tensor with the shape, strides and storage it had then; its elements may be newer."""
        return geometry_at(self._ledger, tensor, row, after=after)

    def device(self, seen: Recorded) -> torch.device:
        """Where the value was when it was computed."""
        return seen.device

    def held(self, recorded: Recorded, row: int) -> Tensor | None:
        """The tensor that is kept in memory for what a row gave, with its geometry then; None if none is."""
        if isinstance(recorded, Ghost):
            kept = recorded.kept
            return kept if kept is None or isinstance(kept, Tensor) else kept.in_memory()
        return cast("Tensor", geometry_at(self._ledger, recorded, row, after=True))

    def wrote(self, row: int, slot: int) -> bool:
        """Whether a row's call wrote into this output rather than making it."""
        return (row, slot) in self._ledger.inplace

    def requires_grad(self, tensor: Recorded, row: int) -> bool:
        """Whether the value that a row gave needed a gradient."""
        if isinstance(tensor, Ghost):
            return tensor.requires_grad
        recorded, edge = self._recorded_edge(tensor, row)
        return edge is not None if recorded else tensor.requires_grad

    def _recorded_edge(self, tensor: Tensor, row: int) -> tuple[bool, GradientEdge | None]:
        """The edge noted before the first change after a row; False where nothing changed it since."""
        for change in self._ledger.metadata.get(id(tensor), ()):
            if change.row > row:
                return True, change.edge
        if self._ledger.writes:
            for write in self._writes_since(storage_key(tensor), row, after=True):
                if id(tensor) in write.edges:
                    return True, write.edges[id(tensor)]
        return False, None

    def gradient_edge(self, tensor: Recorded, row: int, *, what: str) -> GradientEdge | None:
        """Where the value that a row gave enters the autograd graph; None if it needs no gradient."""
        if isinstance(tensor, Ghost):
            kept = tensor.kept
            if not tensor.requires_grad and not isinstance(kept, Tensor):
                return None
            if kept is None:
                raise NotSavedError(self._not_kept(what))
            if not isinstance(kept, Tensor):
                edge = kept.gradient_edge()
                if edge is None:
                    raise NotSavedError(
                        f"the place of {what} in the autograd graph was not kept, only a copy of its value; "
                        "ask for CaptureOptions(backward_ready=True), or for no copies"
                    )
                return edge
            if tensor.requires_grad and not kept.requires_grad:
                raise NotSavedError(
                    f"the place of {what} in the autograd graph was not kept, because of "
                    "detach_saved_activations; leave that out"
                )
            tensor = kept
        recorded, edge = self._recorded_edge(tensor, row)
        if recorded:
            return edge
        self.check_unchanged(tensor, row, what)
        return gradient_edge_of(tensor)

    def _check_storage(self, tensor: Tensor, what: str) -> None:
        try:
            held = tensor.untyped_storage().nbytes()
        except (RuntimeError, NotImplementedError):
            return
        needed = region_of(tensor).span[1]
        if tensor.numel() and held < needed:  # reading it would crash the process
            raise OverwrittenError(
                f"the storage of {what} was resized to {held} bytes, {needed} are needed; keep a copy "
                "of the value before its storage is freed"
            )

    def why_missing(self, recorded: Recorded) -> str | None:
        """The reason for which a tensor has no elements; None: live tensors have them."""
        return None

    def check_there(self, recorded: Recorded, what: str) -> None:
        """Raise if a tensor has no elements to read."""
        reason = self.why_missing(recorded)
        if reason is not None:
            told = f"is not in the file: {reason}"
            raise MissingValueError(f"the value of {what} {told}", f"a value it needs {told}")

    def check_bytes(self, tensor: Tensor, what: str) -> None:
        """Raise if the elements that the tensor shows are not the recorded ones: of live ones, never."""

    def check_unchanged(self, tensor: Tensor, row: int, what: str) -> None:
        """Raise if torch's version counter rose by more than the writes that were seen."""
        baseline = self._baseline(tensor, row)
        if baseline is None:
            return
        moved, seen = self._rises(tensor, *baseline)
        if moved > seen:
            raise OverwrittenError(
                f"the value of {what} was changed in place by something the capture did not see, during or "
                "after it: torch's version counter rose by "
                f"{moved}, {seen} of it by recorded writes; clone the value before it is changed"
            )

    def unexplained_rows(self) -> list[int]:
        """Rows whose tensor was changed during the run by no recorded write, one for each tensor."""
        found: list[int] = []
        for tensor, noted in self._noted_tensors().values():
            row, version = noted[0]
            if version_of(tensor) not in (version, None):
                moved, seen = self._rises(tensor, row, version)
                if moved > seen:
                    found.append(row)
        return found

    def explained_rise(self, tensor: Tensor, first: int, last: int) -> int:
        """By how much recorded writes raised the version counter after one row, up to another."""
        counter = self._counters.get(id(tensor), 0)
        return sum(
            self._bumps_after(key, counter, first) - self._bumps_after(key, counter, last)
            for key in self._keys(tensor)
        )

    def _rises(self, tensor: Tensor, row: int, version: int) -> tuple[int, int]:
        """By how much the version counter rose since a row, and how much of it recorded writes explain."""
        now = version_of(tensor)
        if now is None:
            return 0, 0
        counter = self._counters.get(id(tensor), 0)
        return now - version, sum(self._bumps_after(key, counter, row) for key in self._keys(tensor))

    def _keys(self, tensor: Tensor) -> set[StorageKey]:
        """The storages that a tensor object has lain on."""
        moves = self._ledger.metadata.get(id(tensor), ())
        return {storage_key(tensor), *(storage_key(move.alias) for move in moves)}

    @cached_property
    def _counters(self) -> Mapping[int, int]:
        """Tensors, by id, that count for themselves: `.data` and its views have a counter of their own."""
        counters: dict[int, int] = {}
        rows = self._record.rows
        for row, (func, args, out) in enumerate(zip(rows.func, rows.args, rows.out)):
            if func == _GET_DATA:
                counters[id(out)] = row + 1
            elif counters and args and id(args[0]) in counters:
                for made in cast("tuple[Recorded, ...]", out) if type(out) is tuple else (out,):
                    if storage_key(made) == storage_key(args[0]):
                        counters[id(made)] = counters[id(args[0])]
        for out in rows.out if counters else ():
            for made in cast("tuple[Recorded, ...]", out) if type(out) is tuple else (out,):
                if isinstance(made, Ghost) and id(made) in counters:
                    counters[id(made.kept)] = counters[id(made)]
        return counters

    def _counter_of(self, write: Write) -> int:
        """The counter that a write raised; that of most tensors of the storage is 0."""
        if not self._counters or write.slot is None:
            return 0
        out = self._record.rows.out[write.row]
        written: object = cast("tuple[object, ...]", out)[write.slot] if type(out) is tuple else out
        return self._counters.get(id(written), 0)

    def _bumps_after(self, key: StorageKey, counter: int, row: int) -> int:
        """By how much recorded writes on a storage raised one of its counters after a row."""
        sums = self._bumps.get((key, counter))
        if sums is None:
            writes = [w for w in self._ledger.writes.get(key, ()) if self._counter_of(w) == counter]
            changes = [*writes, *self._ledger.metadata_on.get(key, ())]
            changes.sort(key=lambda change: change.row)
            totals = [0, *accumulate(change.bumps for change in changes)]
            sums = self._bumps[key, counter] = [change.row for change in changes], totals
        rows, totals = sums
        return totals[-1] - totals[bisect_right(rows, row)]

    def _baseline(self, tensor: Tensor, row: int) -> tuple[int, int] | None:
        """The last (row, version counter) noted for the tensor object at or before a row."""
        noted = self._noted_tensors().get(id(tensor))
        if noted is None:
            return None
        earlier = [entry for entry in noted[1] if entry[0] <= row]
        return earlier[-1] if earlier else noted[1][0]

    def _noted_tensors(self) -> dict[int, tuple[Tensor, list[tuple[int, int]]]]:
        """By id, each tensor with the (row, version counter) pairs that were noted for it."""
        if self._noted is None:
            self._noted = noted = cast("dict[int, tuple[Tensor, list[tuple[int, int]]]]", {})
            structure = self._record.structure
            before = [(tensor, version) for tensor, _, version in structure.held_params]
            before += [(buffer.initial, buffer.version) for _, buffer in structure.held_buffers]
            for tensor, count in before:
                if count is not None:
                    noted.setdefault(id(tensor), (tensor, []))[1].append((-1, count))
            rows = self._record.rows
            for row, (out, version) in enumerate(zip(rows.out, rows.version)):
                outs = cast("tuple[Recorded, ...]", out) if type(out) is tuple else (out,)
                counts = cast("tuple[int | None, ...]", version) if type(version) is tuple else (version,)
                for made, count in zip(outs, counts):
                    tensor = made.kept if isinstance(made, Ghost) else made
                    if count is not None and isinstance(tensor, Tensor):
                        noted.setdefault(id(tensor), (tensor, []))[1].append((row, count))
        return self._noted


def _row(write: Write) -> int:
    return write.row


def is_tensor(value: object) -> TypeGuard[Recorded]:
    """Whether a recorded argument is a tensor, kept or not."""
    return isinstance(value, RECORDED)
