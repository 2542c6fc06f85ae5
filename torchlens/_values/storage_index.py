"""Which recorded tensors share a storage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Protocol, cast

from torch import Tensor

from torchlens._values.geometry import storage_key
from torchlens._values.ghost import Recorded, StorageKey


class Index(Protocol):
    """What the ledger asks about the tensors of a capture."""

    @property
    def num_rows(self) -> int:
        """How many rows there are now."""
        ...

    def keeps(self, key: StorageKey) -> bool:
        """Whether a value on this storage is kept, so that what a write overwrites must be saved."""
        ...

    def kept_on(self, key: StorageKey) -> Sequence[tuple[int, Tensor]]:
        """(row, tensor) of the kept values on this storage, oldest first."""
        ...

    def described(self, tensor: Tensor) -> Recorded:
        """What stands for the tensor as it is now: an alias where its storage is kept, otherwise a ghost."""
        ...


class StorageIndex:
    """Recorded tensors by storage, where rows keep all of them alive.

    Each row is looked at once, at the first question after it.
    """

    def __init__(self, rows: Sequence[tuple[Any, ...]]) -> None:
        self._rows = rows
        self._indexed = 0
        self._tensors: dict[StorageKey, list[tuple[int, Tensor]]] = {}

    @property
    def num_rows(self) -> int:
        """How many rows there are now."""
        return len(self._rows)

    def keeps(self, key: StorageKey) -> bool:
        return True

    def kept_on(self, key: StorageKey) -> Sequence[tuple[int, Tensor]]:
        return self.tensors_on(key)

    def described(self, tensor: Tensor) -> Tensor:
        return tensor.detach()

    def tensors_on(self, key: StorageKey) -> Sequence[tuple[int, Tensor]]:
        """(row, tensor) of every recorded use of a tensor on this storage, oldest first."""
        self._catch_up()
        return self._tensors.get(key, ())

    def first_on_each(self, since: int) -> Iterator[Tensor]:
        """The first recorded tensor on each storage, without the `since` storages that were met first."""
        self._catch_up()
        return (uses[0][1] for uses in islice(self._tensors.values(), since, None))

    @property
    def num_storages(self) -> int:
        """How many storages were met, as of the last question."""
        return len(self._tensors)

    def _catch_up(self) -> None:
        for at in range(self._indexed, len(self._rows)):
            for tensor in tensors_of(self._rows[at]):
                self._tensors.setdefault(storage_key(tensor), []).append((at, tensor))
        self._indexed = len(self._rows)


def tensors_of(row: tuple[Any, ...]) -> Iterator[Tensor]:
    """Every tensor among the arguments and outputs of a row."""
    _, _, _, _, _, args, kwargs, out, *_ = row
    stack: list[Any] = [args, kwargs, out]
    while stack:
        item = stack.pop()
        if isinstance(item, Tensor):
            yield item
        elif isinstance(item, (list, tuple)):
            stack.extend(cast("list[Any]", item))
        elif isinstance(item, dict):
            stack.extend(cast("dict[Any, Any]", item).values())
        elif type(item) is slice:
            stack.extend((item.start, item.stop, item.step))
