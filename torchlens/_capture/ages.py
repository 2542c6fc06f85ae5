"""Whether a tensor is older than the capture: the collector lists the youngest objects in order of birth.

What was made before the capture began cannot hold the work of its ops, whatever name it is found under; what
was made since, by no recorded call, may. Names alone do not tell: a result that was stored in an attribute
during the run is found there like one that was always there.
"""

from __future__ import annotations

import gc
from contextlib import suppress
from typing import Final

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from torchlens._values.geometry import storage_key

_MOST_SCANNED: Final = 5_000_000
"""Objects looked at in one capture: about a fifth of a second."""


class Ages:
    """Tells the tensors born since `open` from older ones.

    A collection moves young objects out of sight. Right before one, the tensors born since the last are
    noted, by their storages: a weak reference to a tensor itself would keep it from being swapped.
    """

    def __init__(self, known: set[int]) -> None:
        self._known = known
        self._marker: list[None] = []
        self._born: dict[int, StorageWeakRef] = {}
        """By the id of a tensor, its storage."""
        self._scanned = 0
        self._asked: tuple[Tensor | None, bool | None] = None, None
        """The last question and its answer: each comes twice."""

    def open(self) -> None:
        self._marker = []  # the youngest object there is
        gc.callbacks.append(self._collection)

    def close(self) -> None:
        gc.callbacks.remove(self._collection)
        self._born.clear()
        self._asked = None, None

    def is_young(self, tensor: Tensor) -> bool | None:
        """Whether the tensor was made during the capture; None after so many questions that it costs."""
        if self._asked[0] is not tensor:
            self._asked = tensor, self._find_age(tensor)
        return self._asked[1]

    def _find_age(self, tensor: Tensor) -> bool | None:
        noted = self._born.get(id(tensor))
        if noted is not None and noted.cdata == storage_key(tensor):
            return True
        if self._scanned > _MOST_SCANNED:
            return None
        young = gc.get_objects(0)
        self._scanned += len(young)
        for item in reversed(young):
            if item is tensor:
                return True
            if item is self._marker:
                return False
        return False

    def young_among(self, tensors: frozenset[int]) -> frozenset[int]:
        """Those of many tensors, by their ids, that were made during the capture."""
        young = set(self._born)
        for item in reversed(gc.get_objects(0)):
            if item is self._marker:
                break
            young.add(id(item))
        return tensors & young

    def _collection(self, phase: str, info: dict[str, int]) -> None:
        if phase != "start":
            return
        with torch._C.DisableTorchFunction():
            for item in reversed(gc.get_objects(0)):
                if item is self._marker:
                    break
                if issubclass(type(item), Tensor) and id(item) not in self._known:
                    with suppress(RuntimeError, NotImplementedError, ValueError):  # it may have no storage
                        self._born[id(item)] = StorageWeakRef(item.untyped_storage())
