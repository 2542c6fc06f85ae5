"""The tensors of a record, numbered, and the storages that they lie in."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from torchlens._files.extent import NoElementsError, plain_tensor
from torchlens._trace.reader import TraceReader
from torchlens._unseen import unseen
from torchlens._values.geometry import Looks, dtype_name, storage_key
from torchlens._values.ghost import Ghost, Look, Recorded, StorageKey
from torchlens._values.region import Region
from torchlens.errors import OverwrittenError, TorchLensError
from torchlens.saving.archive import ALIGNMENT
from torchlens.saving.blobs import Blob
from torchlens.saving.composites import UNINITIALISED, describe
from torchlens.saving.loaded_tensors import Lost

WITHHELD: Final = (
    "it lies in a parameter, and the trace was saved without parameters; save it with "
    "tl.save(trace, path, params=True)"
)
_MOST_UNSEEN: Final = 4
"""How many times what tensors show of a storage may be written of it."""
_SMALL: Final = 2**16
"""Bytes of a storage that is written whole, whatever tensors show of it."""
_UNINITIALISED: Final = "a parameter that a lazy module will fill has no elements yet"


@dataclass(slots=True)
class Entry:
    """What the file says of a tensor."""

    recorded: Recorded
    look: Look
    device: torch.device
    storage: int
    parts: str | None = None
    """What a quantized, nested or sparse tensor consists of, as JSON."""
    before: int | None = None
    kept: int | None = None
    kept_row: int | None = None
    reason: str | None = None
    """Why its value can't be read; None where it can, or where a ghost was never to have one."""


class Tensors:
    """Numbers the tensors that a record holds, each when it is first met, and gathers their storages."""

    def __init__(self, reader: TraceReader, *, params: bool) -> None:
        self.entries: list[Entry] = []
        self._values = reader.values
        self._numbers: dict[int, int] = {}
        self._looks = Looks()
        self._storages: dict[StorageKey, int] = {}
        self._on: list[Tensor | None] = []
        """By storage, some tensor on it whose elements are kept."""
        self._params: set[StorageKey] = set()
        if not params:
            structure = reader.record.structure
            held = [tensor for tensor, _, _ in structure.held_params]
            held += [tensor for tensor, _ in structure.replacements]
            self._params = {storage_key(tensor) for tensor in held} | reader.ledger.param_storages

    def number(self, recorded: Recorded) -> int:
        """The number of a tensor, or of what stands for it."""
        found = self._numbers.get(id(recorded))
        if found is not None:
            return found
        waiting: list[Recorded] = [recorded]
        while (
            isinstance(waiting[-1], Ghost) and waiting[-1].before is not None
        ):  # its earlier selves come first
            if id(waiting[-1].before) in self._numbers:
                break
            waiting.append(waiting[-1].before)
        for each in reversed(waiting):
            with unseen():
                entry = self._ghost(each) if isinstance(each, Ghost) else self._tensor(each)
            self._numbers[id(each)] = len(self.entries)
            self.entries.append(entry)
        return self._numbers[id(recorded)]

    def known(self, identity: int) -> int | None:
        """The number of the tensor with this id; None if no tensor of the record had it."""
        return self._numbers.get(identity)

    def storage(self, key: StorageKey) -> int:
        """The number of a storage."""
        found = self._storages.get(key)
        if found is None:
            found = self._storages[key] = len(self._on)
            self._on.append(None)
        return found

    def _ghost(self, ghost: Ghost) -> Entry:
        entry = Entry(ghost, ghost.look, ghost.look.device, self.storage(ghost.key))
        if ghost.before is not None:
            entry.before = self._numbers[id(ghost.before)]
        if isinstance(ghost.kept, Tensor):
            entry.kept = self.number(ghost.kept)
        elif isinstance(ghost.kept, Lost):
            entry.reason = ghost.kept.reason
        elif ghost.kept is not None:
            try:
                value = ghost.kept.read("it")
            except TorchLensError as error:  # of values that a run wrote to a directory, which may be gone
                entry.reason = str(error)
            else:
                entry.kept, entry.kept_row = self.number(value), ghost.kept.row
        return entry

    def _tensor(self, tensor: Tensor) -> Entry:
        key = storage_key(tensor)
        if is_lazy(tensor):
            region, place = Region(0, (0,), (1,), 1), tensor.device
            nothing = Look((), region, tensor.dtype, place, tensor.layout, 0, tensor.requires_grad, False)
            parts = json.dumps(UNINITIALISED)
            return Entry(tensor, nothing, place, self.storage(key), parts, reason=_UNINITIALISED)
        look = self._looks.of(tensor)
        entry = Entry(tensor, look, self._values.device(tensor), self.storage(key))
        if key not in self._params and (parts := describe(tensor, self.number)) is not None:
            entry.parts = json.dumps(parts)
        entry.reason = self._why_not(tensor, key, is_composite=entry.parts is not None)
        if entry.reason is not None:
            entry.parts = None
        if entry.reason is None and not tensor.is_meta and key > 0:
            self._on[entry.storage] = tensor
        return entry

    def _why_not(self, tensor: Tensor, key: StorageKey, *, is_composite: bool) -> str | None:
        """The reason for which a tensor's elements are not written; None where they are."""
        missing = self._values.why_missing(tensor)
        if missing is not None or key in self._params:
            return missing or WITHHELD
        try:
            if not (is_composite or (tensor.is_meta and tensor.layout is torch.strided)):
                plain_tensor(tensor)
            self._values.check_unchanged(tensor, -1, "it")
        except (NoElementsError, OverwrittenError) as reason:
            return str(reason)
        first, past = self._looks.of(tensor).region.span
        if key > 0 and not tensor.is_meta and first < past > tensor.untyped_storage().nbytes():
            return "its storage was resized, and its elements are gone"
        self._values.check_bytes(tensor, "a value")
        return None

    def blobs(self) -> list[Blob]:
        """For each storage its bytes: all, or where these are many more, what tensors of the record show."""
        spans = [(0, 0)] * len(self._on)
        for entry in self.entries:
            first, past = entry.look.region.span
            low, high = spans[entry.storage]
            if past > first:
                spans[entry.storage] = min(first, low) if high else first, max(past, high)
        with unseen():
            return [_blob(tensor, *span) for tensor, span in zip(self._on, spans)]

    def columns(self) -> dict[str, list[Any]]:
        """The table of tensors, column by column."""
        entries, looks = self.entries, [entry.look for entry in self.entries]
        ghosts = [entry.recorded if isinstance(entry.recorded, Ghost) else None for entry in entries]
        tensors = [entry.recorded if entry.reason is None else None for entry in entries]
        return {
            "storage": [entry.storage for entry in entries],
            "dtype": [dtype_name(look.dtype) for look in looks],
            "device": [str(entry.device) for entry in entries],
            "layout": [str(look.layout).removeprefix("torch.") for look in looks],
            "shape": [list(look.shape) for look in looks],
            "offset": [look.region.offset for look in looks],
            "size": [list(look.region.size) for look in looks],
            "stride": [list(look.region.stride) for look in looks],
            "itemsize": [look.region.itemsize for look in looks],
            "nbytes": [str(look.nbytes) for look in looks],
            "requires_grad": [look.requires_grad for look in looks],
            "is_nested": [look.is_nested for look in looks],
            "is_conj": [isinstance(tensor, Tensor) and tensor.is_conj() for tensor in tensors],
            "is_neg": [isinstance(tensor, Tensor) and tensor.is_neg() for tensor in tensors],
            "parts": [entry.parts for entry in entries],
            "row": [None if ghost is None else ghost.row for ghost in ghosts],
            "before": [entry.before for entry in entries],
            "kept": [entry.kept for entry in entries],
            "kept_row": [entry.kept_row for entry in entries],
            "reason": [entry.reason for entry in entries],
        }


def _blob(tensor: Tensor | None, first: int, past: int) -> Blob:
    """The bytes of a storage that some tensor lies on; none where no tensor on it has elements to keep."""
    low = first // ALIGNMENT * ALIGNMENT
    if tensor is None:
        return Blob(None, past - low, torch.uint8, low)
    source = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    storage = tensor.untyped_storage()
    past = min(past, storage.nbytes())  # what was not kept may have lain on more of it
    if storage.nbytes() <= max(_MOST_UNSEEN * (past - low), _SMALL):
        low, past = 0, storage.nbytes()
    return Blob(source.set_(storage, low, (past - low,), (1,)), past - low, tensor.dtype, low)


def columns_of(blobs: Sequence[Blob]) -> dict[str, list[Any]]:
    """The table of storages, once their bytes are written."""
    return {
        "shard": [blob.shard for blob in blobs],
        "begin": [blob.begin for blob in blobs],
        "nbytes": [blob.nbytes for blob in blobs],
        "low": [blob.low for blob in blobs],
        "sha256": [blob.sha256 for blob in blobs],
    }
