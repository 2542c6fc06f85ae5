"""Operators that ran without a torch call around them, and which of them lie behind a tensor.

With the witness on, what a TorchScript function or a C++ extension does is seen operator by operator. When a
tensor that they made enters a call, all that was needed for it becomes one op, whose arguments are the known
tensors it was made of.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from torchlens._capture.call_site import CallSites
from torchlens._capture.doubts import Doubts
from torchlens._records import CensusEntry
from torchlens._values.geometry import storage_key
from torchlens._values.ghost import StorageKey
from torchlens._values.plain import tensors_in
from torchlens._values.versions import version_of

NAME: Final = "unseen"
"""What an op made of such work is called."""


@dataclass(slots=True)
class _Work:
    """One operator. What it read is known by the operators that made it, or held."""

    operator: str
    line: str
    where: tuple[int, int]
    at: int
    """How many rows there were."""
    made_by: list[int] = field(default_factory=list[int])
    read: list[tuple[Tensor, int | None]] = field(default_factory=list[tuple[Tensor, "int | None"]])
    """Tensors from elsewhere, with their version counters."""
    explained: bool = False

    @property
    def is_constant(self) -> bool:
        """Whether it read no tensor: no edge can be missing."""
        return not (self.made_by or self.read)


@dataclass(slots=True)
class Behind:
    """The work behind one tensor."""

    where: tuple[int, int]
    read: list[Tensor]
    """The tensors from elsewhere that it needed."""


class UnseenWork:
    """The operators of one capture that no torch call explains."""

    def __init__(self, rows: list[tuple[Any, ...]], sites: CallSites) -> None:
        self._rows = rows
        self._sites = sites
        self._done: list[_Work] = []
        self._makers: dict[StorageKey, list[int]] = {}
        self._storages: dict[StorageKey, StorageWeakRef] = {}
        """Weak references to what was made: its memory is freed, its address is not used again."""

    def add(self, operator: str, frame: FrameType, args: Any, out: object) -> None:
        """Note an operator that `frame` ran."""
        line = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        work = _Work(operator, line, self._sites.locate(frame), len(self._rows))
        for tensor in tensors_in(args):
            makers = self._makers.get(storage_key(tensor))
            if makers is None:
                work.read.append((tensor, version_of(tensor)))
            else:
                work.made_by += makers
        read = {storage_key(tensor) for tensor, _ in work.read}
        for tensor in tensors_in(out):
            key = storage_key(tensor)
            if key > 0 and key not in read:  # what it writes into stays whose it was
                self._makers.setdefault(key, []).append(len(self._done))
                self._storages[key] = StorageWeakRef(tensor.untyped_storage())
        self._done.append(work)

    def behind(self, tensor: Tensor) -> Behind | None:
        """The work that a tensor needed, which is explained from now on; None where none made it."""
        makers = self._makers.get(storage_key(tensor))
        if makers is None:
            return None
        needed, queue = dict.fromkeys(makers), list(makers)
        while queue:
            for at in self._done[queue.pop()].made_by:
                if at not in needed:
                    needed[at] = None
                    queue.append(at)
        works = [self._done[at] for at in sorted(needed)]
        read = {id(tensor): (tensor, version) for work in works for tensor, version in work.read}
        # what was written since has other values as an argument of the op: that is not explained
        fresh = all(version_of(tensor) == version for tensor, version in read.values())
        for work in works:
            work.explained = fresh
        return Behind(works[-1].where, [tensor for tensor, _ in read.values()])

    def counts(self) -> dict[str, int]:
        """How many operators an op stands for, and how many made constants that no op used."""
        explained = sum(work.explained for work in self._done)
        constants = sum(work.is_constant and not work.explained for work in self._done)
        return {"boundary": explained, "constant": constants}

    def leftovers(self, doubts: Doubts) -> list[CensusEntry]:
        """What no op stands for, by operator and line; each is a doubt."""
        found = [work for work in self._done if not (work.explained or work.is_constant)]
        for work in found:
            doubts.add("unwitnessed_op", work.at)
        counts = Counter((work.operator, work.line) for work in found)
        return [CensusEntry(operator, count, line) for (operator, line), count in counts.items()]
