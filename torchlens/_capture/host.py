"""Values that left torch for numpy or Python, and tensors that were made of such data.

What happens outside torch is not seen, but both ends are: a read hands a value out, and a tensor made of host
data comes in. Where both lie in the same memory the edge is certain. Where they do not, any value that left
before may have gone into the new tensor, so all of them count, and the trace says that it is a guess.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, cast

from torch import Tensor

from torchlens._capture.call_site import CallSites
from torchlens._capture.doubts import Doubts
from torchlens._capture.holding import Holding
from torchlens._unseen import unseen
from torchlens._values.geometry import storage_key
from torchlens._values.ghost import Recorded
from torchlens._values.plain import SCALARS, recorded_in
from torchlens._values.shared_memory import SharedMemory, moved

LEAVING: Final = frozenset(["numpy", "__array__", "tolist", "__dlpack__", "untyped_storage", "storage"])
"""Reads that hand out a whole value. `item` and `bool` steer the code and carry no edge."""
_METHODS: Final = frozenset(["new", "new_tensor"])
"""Methods that make a tensor of host data; of the tensor itself they take dtype and device."""
_MOST_EDGES: Final = 64
"""Of more values that left, the last ones are taken."""


class HostData:
    """The host edges of one capture."""

    def __init__(
        self,
        holding: Holding,
        sites: CallSites,
        memory: SharedMemory,
        doubts: Doubts,
    ) -> None:
        self.edges: dict[int, list[tuple[Recorded, int]]] = {}
        self._holding = holding
        self._rows = holding.rows
        self._sites = sites
        self._memory = memory
        self._doubts = doubts
        self._left: list[tuple[Recorded, int, int]] = []
        """What rows hold, number of rows and module call, of each value that left."""
        self._lent: dict[int, Tensor] = {}
        """Tensors whose memory left: they are held, because it can be written and come back."""
        self.foreign: list[Tensor] = []
        """Tensors that came in whose memory is not torch's own."""
        self._taken = 0

    def leaves(self, name: str, tensor: Tensor, recorded: Recorded) -> None:
        """A read hands out the tensor's value."""
        if name in LEAVING:
            call = self._sites.calls[-1] if self._sites.calls else 0
            self._left.append((recorded, len(self._rows), call))
            if name != "tolist":
                self._lent[id(tensor)] = tensor

    def comes_in(self, tensor: Tensor) -> None:
        """A tensor from outside: if its memory is not torch's own, others may share it, and write there."""
        if not is_torchs_memory(tensor):
            self.foreign.append(tensor)

    @property
    def anything_left(self) -> bool:
        """Whether a value has left so far."""
        return bool(self._left)

    def shared(self, tensor: Tensor) -> Tensor | None:
        """The tensor's elements through a known storage that lies over the same memory, or None."""
        if is_torchs_memory(tensor) and not self.foreign:
            return None
        with unseen():
            return self._shared(tensor)

    def _shared(self, tensor: Tensor) -> Tensor | None:
        self._memory.take(self._holding.first_on_each(self._taken))
        self._taken = self._holding.num_storages
        self._memory.take(self._lent.values())  # parameters are in no row
        behind = self._memory.behind(tensor)
        if behind is None or not self._holding.known_on(storage_key(behind)):
            return behind
        return moved(tensor, behind)

    def add_shared(self, row: int, behind: Tensor) -> None:
        """The tensor of a row lies over the memory of a known one: what wrote there last is its parent."""
        known = self._holding.recorded(behind)
        assert known is not None
        self.edges[row] = [(known, row)]

    def add_returned(self, row: int, given: Sequence[Recorded]) -> bool:
        """A tensor was made of host data: edges from all that left, if anything did.

        What left in the same module call counts, otherwise all that left before. `given` are tensors
        that the call names itself.
        """
        call = self._rows[row][3]
        earlier = [left for left in self._left if left[1] <= row]
        nearest = [left for left in earlier if left[2] == call] or earlier
        named = set(map(id, given))
        found = {id(tensor): (tensor, at) for tensor, at, _ in nearest if id(tensor) not in named}
        if not found:
            return False
        self.edges[row] = list(found.values())[-_MOST_EDGES:]
        self._doubts.add("host_round_trip", row, row=row)
        return True

    def made(self, row: int, out: object, alias: Callable[[Tensor, int], bool]) -> None:
        """The call of a row made a tensor of what may be host data (`torch.tensor`, `__array_wrap__`).

        `alias` takes in a tensor that we made of a known storage, and tells whether it is known then.
        """
        _, func, _, _, _, args, kwargs, *_ = self._rows[row]
        if func.__name__ in _METHODS:
            args = args[1:]
        values = cast("tuple[object, ...]", (*args, *(kwargs or {}).values()))
        if not isinstance(out, Tensor) or all(type(value) in SCALARS for value in values):
            return
        if not out.numel():  # it carries nothing
            return
        given = recorded_in(values)
        if not is_torchs_memory(out) and not given:
            behind = self.shared(out)
            if behind is not None and alias(behind, row):
                self.add_shared(row, behind)
                return
        is_copy = bool(given) and func.__name__ != "__array_wrap__"
        if self._left and not is_copy:
            self.add_returned(row, given)


def is_torchs_memory(tensor: Tensor) -> bool:
    """Whether torch allocated the tensor's memory, as far as can be told: numpy's can't be resized."""
    try:
        return tensor.device.type != "cpu" or tensor.untyped_storage().resizable()
    except (RuntimeError, NotImplementedError, ValueError):  # it has no storage
        return True
