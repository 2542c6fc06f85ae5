"""Who wrote into which storage, and the bytes each write was about to overwrite.

The ledger is written while the model runs and read afterwards. Nothing is paid for a storage that is never
written: its only version is the live one. A write first saves what it is about to overwrite, so that older
versions can be rebuilt from the newest by undoing writes, newest first.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from torchlens._unseen import unseen
from torchlens._values.geometry import (
    flat_span,
    flat_storage,
    is_wrapper,
    octets_of,
    region_of,
    same_geometry,
    storage_key,
)
from torchlens._values.ghost import Ghost, Recorded, StorageKey
from torchlens._values.handed_out import HandedOut, HandedOutMemory
from torchlens._values.shared_memory import SharedMemory, moved, overlaps
from torchlens._values.storage_index import Index
from torchlens._values.versions import gradient_edge_of, version_of

Edges: TypeAlias = dict[int, GradientEdge | None]
"""Gradient edges by the id of the tensor they belong to; None for a tensor that needs no gradient."""


@dataclass(slots=True)
class Write:
    """One write into a storage."""

    row: int
    slot: int | None
    """The op of the row that wrote; None when the call failed on the way."""
    tensor: Recorded
    """The written tensor as it was: the geometry that counts as written."""
    region: Recorded
    """The elements to restore `saved` into."""
    index: Any = None
    """Where in `region` the saved elements go, when they were picked by index tensors."""
    saved: Tensor | None = None
    lost: str | None = None
    """Why the older elements were not saved."""
    bumps: int = 0
    """By how much torch's version counter rose."""
    mirrors: Sequence[Write] = ()
    """The same write in other storages over the same memory."""
    # `Edges` as the factory would cost a microsecond each write
    edges: Edges = field(default_factory=cast("type[Edges]", dict))
    """Gradient edges, just before the write, of the tensors seen on this storage since the last one."""

    def left_all_as_it_was(self) -> bool:
        """Whether the elements are what they were, so that it may have been no write at all."""
        if self.saved is None or self.index is not None or isinstance(self.region, Ghost):
            return False
        return torch.equal(self.saved, self.region)

    def belong_to(self, row: int, slot: int) -> None:
        """The op that wrote, once it is recorded."""
        for each in (self, *self.mirrors):
            each.row = row
            each.slot = slot


@dataclass(slots=True)
class MetadataWrite:
    """The geometry a tensor object had before its shape, strides or storage were changed in place."""

    row: int
    alias: Recorded
    edge: GradientEdge | None
    bumps: int = 0
    """By how much torch's version counter, which views share, rose."""


class Ledger:
    """All writes of one capture, in order, by storage."""

    def __init__(self, index: Index, max_copied: int | None) -> None:
        self.writes: dict[StorageKey, list[Write]] = {}
        self.metadata: dict[int, list[MetadataWrite]] = {}
        """By the id of the tensor object."""
        self.reshaped: set[int] = set()
        """The rows whose calls changed the metadata of a tensor."""
        self.metadata_on: dict[StorageKey, list[MetadataWrite]] = {}
        self.copied_bytes = 0
        self.param_storages: set[StorageKey] = set()
        self.inplace: set[tuple[int, int]] = set()
        """(row, slot) of each op whose tensor was written or reshaped rather than made."""
        self.shared_memory = SharedMemory()
        self.handed_out = HandedOutMemory()
        self.changed: list[HandedOut] = []
        """Memory that something else than a recorded write has changed."""
        self._max_copied = max_copied
        self._index = index

    def before_write(self, tensor: Tensor, region: Tensor, index: Any) -> Write:
        """Save what is about to be overwritten: `region`, or `region[index]` where `index` is given."""
        key = storage_key(tensor)
        if self.handed_out:
            for each in self._storages_under(key):
                within = region_of(region).span if each == key and not is_wrapper(tensor) else None
                self._lose(self.handed_out.changed(each, within), self._index.num_rows)
        wrapper = is_wrapper(tensor)
        if not wrapper and (tensor.is_quantized or tensor.is_nested):
            region, index = octets_of(region), None  # torch cannot write saved elements into a view of these
        elif index is None and not wrapper and region_of(region).may_overlap_itself:
            region = flat_span(region)  # torch refuses to write the saved elements back otherwise
        kept = self._keeps(key)
        # a tensor without a storage is known by itself only
        written = tensor if key < 0 and kept else self._described(tensor, kept)
        write = Write(self._index.num_rows, None, written, self._described(region, kept))
        if kept and torch.is_grad_enabled():
            write.edges = self._edges_since_last_write(key)
        if key in self.param_storages:
            write.lost = "parameters are referenced, never copied; clone one before it is changed"
        elif not kept:
            write.lost = "nothing that was on its storage then was to be kept"
        elif wrapper:
            write.lost = f"only {type(tensor).__name__} itself knows where its elements are; clone it before"
        else:
            self._save(write, region, index)
        write.bumps = -(version_of(tensor) or 0)
        self.writes.setdefault(key, []).append(write)
        if self.shared_memory:
            others = [other for other in self.shared_memory.sharing(key) if _overlaps(write.region, other)]
            write.mirrors = [self._mirrored(write, other) for other in others]
        return write

    def _keeps(self, key: StorageKey) -> bool:
        shared = bool(self.shared_memory) and bool(self.shared_memory.sharing(key))
        return shared or key in self.param_storages or self._index.keeps(key)

    def _described(self, tensor: Tensor, kept: bool) -> Recorded:
        return tensor.detach() if kept else self._index.described(tensor)

    def note_write(self, tensor: Tensor, row: int, slot: int, bumps: int, lost: str) -> None:
        """A write by the call of `row` that showed only afterwards; `lost` says why nothing older is left."""
        seen = self._described(tensor, self._keeps(storage_key(tensor)))
        write = Write(row, slot, seen, seen, lost=lost, bumps=bumps)
        self.writes.setdefault(storage_key(tensor), []).append(write)
        self.handed_out.written(storage_key(tensor))

    def after_write(self, write: Write, tensor: Tensor, row: int, slot: int) -> None:
        """Complete a write whose call returned and is recorded as `row`; `slot` is the op that wrote."""
        write.belong_to(row, slot)
        self.end_write(write, tensor)
        apart = storage_key(tensor) < 0 or is_wrapper(tensor)  # from any alias of it
        if not apart and not same_geometry(write.tensor, tensor):  # `out=` resizes what it is given
            kept = not isinstance(write.tensor, Ghost)
            if kept:
                self.metadata.setdefault(id(tensor), []).append(MetadataWrite(row, write.tensor, None))
            write.tensor = self._described(tensor, kept)

    def end_write(self, write: Write | MetadataWrite, tensor: Tensor) -> None:
        """Complete a write that belongs to no op, at least yet: its call raised, or is part of another."""
        write.bumps += version_of(tensor) or 0
        if self.handed_out:
            own = storage_key(tensor)
            plain = isinstance(write, Write) and write.saved is not None and not is_wrapper(tensor)
            within = region_of(write.region).span if isinstance(write, Write) and plain else None
            for key in self._storages_under(own):
                self.handed_out.written(key, within if key == own else None)

    def end(self, row: int) -> None:
        """Find the last changes of memory by something else; values before `row` are lost to them."""
        with unseen():
            self._lose(self.handed_out.all_changed(), row)
        del self._index  # with the rows as they were gathered, and what is known of each tensor

    def before_metadata(self, tensor: Tensor) -> MetadataWrite:
        """Keep the geometry of a tensor whose metadata is about to change."""
        key = storage_key(tensor)
        kept = self._keeps(key)
        with unseen():
            edge = gradient_edge_of(tensor) if kept else None
            before = MetadataWrite(self._index.num_rows, self._described(tensor, kept), edge)
        before.bumps = -(version_of(tensor) or 0)
        self.reshaped.add(before.row)
        self.metadata_on.setdefault(key, []).append(before)
        if kept:  # of another tensor each op holds what it was by itself
            self.metadata.setdefault(id(tensor), []).append(before)
        return before

    def after_metadata(self, change: MetadataWrite, tensor: Tensor) -> None:
        """Complete a change of metadata, whether its call returned or raised."""
        change.bumps += version_of(tensor) or 0

    def _storages_under(self, key: StorageKey) -> list[StorageKey]:
        """The storages over the same memory."""
        return [key, *(storage_key(other) for other in self.shared_memory.sharing(key))]

    def _lose(self, changed: Iterable[HandedOut], row: int) -> None:
        why = "something beside torch's ops wrote there, through numpy or the storage"
        for each in list(changed):
            self.changed.append(each)
            self.lose(each.span, row, why)

    def lose(self, tensor: Tensor, row: int, why: str) -> None:
        """Note that the tensor's elements were changed before a row, by no op, and not saved."""
        write = Write(row, None, tensor, tensor, lost=why)
        self.writes.setdefault(storage_key(tensor), []).append(write)

    def _mirrored(self, write: Write, other: Tensor) -> Write:
        """A write as it is seen through another storage over the same memory."""
        assert not isinstance(write.tensor, Ghost) and not isinstance(write.region, Ghost)
        written, region = moved(write.tensor, other), moved(write.region, other)
        if written is None or region is None:
            whole, why = flat_storage(other), "its memory was written through another tensor"
            mirror = Write(write.row, None, whole, whole, lost=why)
        else:
            mirror = Write(write.row, None, written, region, write.index, write.saved, write.lost)
        self.writes.setdefault(storage_key(other), []).append(mirror)
        return mirror

    def _save(self, write: Write, region: Tensor, index: Any) -> None:
        try:
            source = region.detach() if index is None else region.detach()[index]
        except (IndexError, RuntimeError, TypeError, ValueError):  # torch will refuse it in its own words
            write.lost = "its index could not be read"
            return
        if source.is_meta:  # it has no elements
            return
        nbytes = source.numel() * source.element_size()
        if self._max_copied is not None and self.copied_bytes + nbytes > self._max_copied:
            write.lost = f"keeping it would have copied more than max_copied={self._max_copied} bytes"
            return
        # picking by index tensors has copied already, but for a single integer, which gives a view
        shared = index is None or storage_key(source) == storage_key(region)
        write.saved = source.clone() if shared else source
        write.index = _frozen(index)  # it may itself be written later
        self.copied_bytes += nbytes

    def _edges_since_last_write(self, key: StorageKey) -> Edges:
        earlier = self.writes.get(key)
        since = earlier[-1].row if earlier else 0
        seen: Edges = {}
        for row, tensor in reversed(self._index.kept_on(key)):
            if row < since:
                break
            if id(tensor) not in seen:
                seen[id(tensor)] = gradient_edge_of(tensor)
        return seen


def _overlaps(region: Recorded, other: Tensor) -> bool:
    return not isinstance(region, Ghost) and overlaps(region, other)


def was_half_done(write: Write) -> bool:
    """Whether a call that raised had changed what it was about to write."""
    if write.bumps > 0 or write.saved is None or isinstance(write.region, Ghost):
        return write.bumps > 0
    with unseen():
        now = write.region if write.index is None else write.region[write.index]
        return not torch.equal(now, write.saved)


def _frozen(index: Any) -> Any:
    """The index with its tensors cloned, so that a later write into them changes nothing."""
    if isinstance(index, Tensor):
        return index.detach().clone()
    if isinstance(index, tuple):
        return tuple(_frozen(part) for part in cast("tuple[Any, ...]", index))
    return copy.deepcopy(index)  # lists and numpy arrays
