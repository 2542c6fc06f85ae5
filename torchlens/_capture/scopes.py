"""Which modules an op ran in, by address, while the model runs."""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager
from typing import Protocol

from torch import nn

from torchlens._capture.live_op import LiveModule
from torchlens._capture.model_state import ModelState
from torchlens._structure import addresses_of, around


class RunningCalls(Protocol):
    """The module calls that were begun, in order; call 0 is the space outside all."""

    def begun(self, call: int) -> tuple[nn.Module, int] | None:
        """The module of a call, and the call that it was made in; None for call 0."""
        ...

    def hushed(self) -> AbstractContextManager[None]:
        """Run a body without taking notice of its module calls."""
        ...


class Scopes:
    """The addresses around the calls of one capture."""

    def __init__(self, state: ModelState, calls: RunningCalls) -> None:
        self._state = state
        self._calls = calls
        self._addresses: list[list[str]] = []
        self._modules = [0]
        """By call, the index of its module."""
        self._numbers = [1]
        """By call, the how many-th call of its module it is."""
        self._counts: Counter[int] = Counter()
        self._parents = [0]
        self._around: dict[int, frozenset[str]] = {0: frozenset([""])}
        self._interned: dict[frozenset[str], int] = {}

    def module_index(self, call: int) -> int:
        self._catch_up(call)
        return self._modules[call]

    def module(self, call: int) -> LiveModule:
        index = self.module_index(call)
        return LiveModule(self.addresses(index)[0], type(self._state.modules[index]).__name__)

    def addresses(self, index: int) -> list[str]:
        """All addresses of a module."""
        if index >= len(self._addresses):
            self._addresses = addresses_of(self._state.module_places)
        return self._addresses[index]

    def around(self, call: int) -> frozenset[str]:
        """The addresses of the modules in whose calls a call runs, its own among them."""
        self._catch_up(call)
        found, inner = self._around.get(call), [call]
        while found is None:
            inner.append(self._parents[inner[-1]])
            found = self._around.get(inner[-1])
        for each in reversed(inner[:-1]):
            found = self._around[each] = found | around(self.addresses(self._modules[each]))
        return found

    def number(self, call: int) -> int:
        """A number that calls with the same modules around them share."""
        around = self.around(call)
        return self._interned.setdefault(around, len(self._interned))

    def names(self, call: int) -> set[str]:
        """What a call goes by: the addresses of its module, with and without the call's number."""
        self._catch_up(call)
        addresses = self.addresses(self._modules[call])
        return {*addresses, *(f"{address}:{self._numbers[call]}" for address in addresses)}

    def _catch_up(self, call: int) -> None:
        for at in range(len(self._modules), call + 1):
            begun = self._calls.begun(at)
            assert begun is not None
            module, parent = begun
            index = self._state.index_of(module)
            self._counts[index] += 1
            self._modules.append(index)
            self._numbers.append(self._counts[index])
            self._parents.append(parent)
