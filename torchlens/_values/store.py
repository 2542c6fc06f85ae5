"""Reading values: the live tensor while it is the newest version, otherwise rebuilt by undoing writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from torchlens._records import Record
from torchlens._values.geometry import last_writers, region_of, storage_key
from torchlens._values.ledger import Ledger, Write
from torchlens._values.lineage import geometry_at
from torchlens._values.versions import gradient_edge_of, version_of
from torchlens.errors import OverwrittenError


class ValueStore:
    """The values of one record. What a row read is its state `before` the row, what it gave `after` it."""

    def __init__(self, record: Record, ledger: Ledger) -> None:
        self._record = record
        self._ledger = ledger
        self._baselines: dict[int, list[tuple[int, int]]] | None = None

    @property
    def copied_bytes(self) -> int:
        """Bytes copied during the run because they were about to be overwritten in place."""
        return self._ledger.copied_bytes

    def read(self, tensor: Tensor, row: int, *, after: bool, what: str) -> Tensor:
        """The value of a tensor object before or after a row's call; `what` names it in errors.

        The live tensor itself where nothing was written since, otherwise a detached copy.
        """
        alias = geometry_at(self._ledger, tensor, row, after=after)
        self._check_storage(alias, what)
        key = storage_key(alias)
        since = [w for w in self._ledger.writes.get(key, ()) if w.row > row or (w.row == row and not after)]
        self._check_unchanged(tensor, alias, row, what)
        region = region_of(alias)
        undo = [w for w in since if last_writers(region, [region_of(w.region)])[0]]
        if not undo:
            return alias
        lost = next((write for write in undo if write.lost is not None), None)
        if lost is not None:
            raise OverwrittenError(
                f"the value of {what} was overwritten in place by row {lost.row}, and not saved before: "
                f"{lost.lost}"
            )
        return _rebuild(alias, since)

    def geometry(self, tensor: Tensor, row: int, *, after: bool) -> Tensor:
        """The tensor with the shape, strides and storage it had then; its elements may be newer."""
        return geometry_at(self._ledger, tensor, row, after=after)

    def wrote(self, row: int, slot: int) -> bool:
        """Whether a row's call wrote into this output rather than making it."""
        return (row, slot) in self._ledger.inplace

    def requires_grad(self, tensor: Tensor, row: int) -> bool:
        """Whether the value that a row gave needed a gradient."""
        recorded, edge = self._recorded_edge(tensor, row)
        return edge is not None if recorded else tensor.requires_grad

    def _recorded_edge(self, tensor: Tensor, row: int) -> tuple[bool, GradientEdge | None]:
        """The edge noted before the first change after a row; False where nothing changed it since."""
        for change in self._ledger.metadata.get(id(tensor), ()):
            if change.row > row:
                return True, change.edge
        for write in self._ledger.writes.get(storage_key(tensor), ()):
            if write.row > row and id(tensor) in write.edges:
                return True, write.edges[id(tensor)]
        return False, None

    def gradient_edge(self, tensor: Tensor, row: int, *, what: str) -> GradientEdge | None:
        """Where the value that a row gave enters the autograd graph; None if it needs no gradient."""
        recorded, edge = self._recorded_edge(tensor, row)
        if recorded:
            return edge
        self._check_unchanged(tensor, tensor, row, what)
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

    def _check_unchanged(self, tensor: Tensor, alias: Tensor, row: int, what: str) -> None:
        """Raise if torch's version counter rose by more than the writes that were seen."""
        now = version_of(tensor)
        baseline = self._baseline(tensor, row)
        if now is None or baseline is None:
            return
        at, version = baseline
        moved = now - version
        moves = self._ledger.metadata.get(id(tensor), ())
        keys = {storage_key(alias), storage_key(tensor), *(storage_key(move.alias) for move in moves)}
        ledger = self._ledger
        noted = (n for key in keys for on in (ledger.writes, ledger.metadata_on) for n in on.get(key, ()))
        seen = sum(change.bumps for change in noted if change.row > at)
        if moved > seen:
            raise OverwrittenError(
                f"the value of {what} was changed in place by something the capture did not see, during or "
                "after it: torch's version counter rose by "
                f"{moved}, {seen} of it by recorded writes; clone the value before it is changed"
            )

    def _baseline(self, tensor: Tensor, row: int) -> tuple[int, int] | None:
        """The last (row, version counter) noted for the tensor object at or before a row."""
        if self._baselines is None:
            self._baselines = self._noted_versions()
        noted = self._baselines.get(id(tensor), [])
        earlier = [entry for entry in noted if entry[0] <= row]
        return earlier[-1] if earlier else (noted[0] if noted else None)

    def _noted_versions(self) -> dict[int, list[tuple[int, int]]]:
        noted: dict[int, list[tuple[int, int]]] = {}
        for tensor, _, version in self._record.structure.held_params:
            if version is not None:
                noted[id(tensor)] = [(-1, version)]
        for _, buffer in self._record.structure.held_buffers:
            if buffer.version is not None:
                noted.setdefault(id(buffer.initial), []).append((-1, buffer.version))
        rows = self._record.rows
        for row, (out, version) in enumerate(zip(rows.out, rows.version)):
            pairs = ((out, version),) if isinstance(out, Tensor) else zip(out, version or ())
            for tensor, count in pairs:
                if count is not None:
                    noted.setdefault(id(tensor), []).append((row, count))
        return noted


def _rebuild(alias: Tensor, since: Sequence[Write]) -> Tensor:
    """The alias's elements with the writes undone, newest first, on a copy of the storage."""
    with torch.no_grad(), torch._C.DisableTorchFunction():
        if storage_key(alias) < 0:  # no storage to rebuild: the whole tensor was saved
            saved = next(write.saved for write in since if write.saved is not None)
            return saved.clone()
        scratch = alias.untyped_storage().clone()
        for write in reversed(since):
            if write.saved is None:
                continue
            target = _on(scratch, write.region)
            if write.index is None:
                target.copy_(write.saved)
            else:
                target[write.index] = write.saved
        rebuilt = _on(scratch, alias)
        mostly = rebuilt.numel() * rebuilt.element_size() * 2 >= scratch.nbytes()
        return rebuilt if mostly else rebuilt.clone()


def _on(storage: torch.UntypedStorage, like: Tensor) -> Tensor:
    """A tensor with the geometry of `like` on another storage."""
    view = torch.empty(0, dtype=like.dtype, device=like.device)
    view.set_(storage, like.storage_offset(), like.shape, like.stride())
    if like.is_conj():
        view = view.conj()
    return torch._neg_view(view) if like.is_neg() else view


def is_tensor(value: object) -> TypeGuard[Tensor]:
    """Whether a recorded argument is a tensor."""
    return isinstance(value, Tensor)
