"""What the captured models consist of, as plain data: modules, parameters and buffers by address.

A capture writes down who holds what under which name; addresses are spelled out when they are first read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

Place: TypeAlias = tuple[int, str]
"""(module, name in it)."""


@dataclass(slots=True)
class ModuleEntry:
    """A module as the capture knew it; index 0 is the root."""

    addresses: tuple[str, ...]
    type_name: str
    parent: int | None
    children: tuple[int, ...]
    params: tuple[int, ...]
    buffers: tuple[int, ...]
    training: bool
    in_model: bool
    """False for a module met only while running, outside the captured model."""


@dataclass(slots=True)
class ParamEntry:
    addresses: tuple[str, ...]
    tensor: Any
    version: int | None
    """Version counter when the capture ended."""


@dataclass(slots=True)
class BufferEntry:
    addresses: tuple[str, ...]
    persistent: bool
    rows: list[int]
    """Its versions' rows, the starting value first; empty when nothing read or wrote it."""
    initial: Any
    final: Any
    version: int | None
    """Version counter of `initial` when the capture began."""


@dataclass
class Structure:
    """Who holds what. Module 0 is the root."""

    module_places: Sequence[Sequence[tuple[int | None, str]]]
    """By module, where it is held; None holds the root and modules outside the model."""
    module_types: Sequence[str]
    training: Sequence[bool]
    held_params: Sequence[tuple[Any, Sequence[Place], int | None]]
    """(tensor, places, version counter when the capture began)."""
    replacements: Sequence[tuple[Any, int]]
    """(tensor, parameter) of tensors that stood in a parameter's place for a while, as offloading does."""
    held_buffers: Sequence[tuple[Sequence[Place], BufferEntry]]
    """The buffers, their addresses still to be spelled."""

    @cached_property
    def param_of_tensor(self) -> dict[int, int]:
        """Id of each tensor that is or was a parameter to that parameter."""
        found = {id(tensor): param for tensor, param in self.replacements}
        found.update((id(tensor), param) for param, (tensor, _, _) in enumerate(self.held_params))
        return found

    @cached_property
    def addresses(self) -> list[list[str]]:
        """All addresses of each module, the first one first."""
        return addresses_of(self.module_places)

    @cached_property
    def modules(self) -> list[ModuleEntry]:
        count = len(self.module_places)
        children, params, buffers = ([list[int]() for _ in range(count)] for _ in range(3))
        for at, places in enumerate(self.module_places):
            for holder in dict.fromkeys(holder for holder, _ in places):
                if holder is not None:
                    children[holder].append(at)
        for at, (_, places, _) in enumerate(self.held_params):
            for holder, _ in places:
                params[holder].append(at)
        for at, (places, _) in enumerate(self.held_buffers):
            for holder, _ in places:
                buffers[holder].append(at)
        return [
            ModuleEntry(
                tuple(self.addresses[at]),
                self.module_types[at],
                self.module_places[at][0][0],
                tuple(children[at]),
                tuple(params[at]),
                tuple(buffers[at]),
                self.training[at],
                in_model=at == 0 or self.module_places[at][0][0] is not None,
            )
            for at in range(count)
        ]

    @cached_property
    def params(self) -> list[ParamEntry]:
        return [
            ParamEntry(self._spelled(places), tensor, version) for tensor, places, version in self.held_params
        ]

    @cached_property
    def buffers(self) -> list[BufferEntry]:
        for places, entry in self.held_buffers:
            entry.addresses = self._spelled(places)
        return [entry for _, entry in self.held_buffers]

    def _spelled(self, places: Sequence[Place]) -> tuple[str, ...]:
        found = (join(address, name) for module, name in places for address in self.addresses[module])
        return tuple(dict.fromkeys(found))


def addresses_of(module_places: Sequence[Sequence[tuple[int | None, str]]]) -> list[list[str]]:
    """All addresses of each module, the first one first. A module inside itself is not followed."""
    found: list[list[str]] = [[] for _ in module_places]
    for index in range(len(found)):
        _spell(index, module_places, found, ())
    return found


def around(addresses: Sequence[str]) -> frozenset[str]:
    """Addresses and those of all that holds them: `a.b.c` lies in `a.b` and `a` too."""
    found: set[str] = set()
    for address in addresses:
        while address and address not in found:
            found.add(address)
            address = address.rpartition(".")[0]
    return frozenset([*found, *(address for address in addresses if not address)])


def _spell(
    index: int,
    module_places: Sequence[Sequence[tuple[int | None, str]]],
    found: list[list[str]],
    within: tuple[int, ...],
) -> list[str]:
    """Fill in the addresses of a module; `within` are the modules inside which it is being spelled."""
    if not found[index] and index not in within:
        for parent, name in module_places[index]:
            prefixes = [""] if parent is None else _spell(parent, module_places, found, (*within, index))
            found[index] += [join(prefix, name) for prefix in prefixes]
    return found[index]


def join(prefix: str, name: str) -> str:
    """An address from that of the holder and the name in it."""
    return f"{prefix}.{name}" if prefix else name
