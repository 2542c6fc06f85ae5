"""The modules, parameters and buffers of the captured models, each known by identity and by address.

A model is walked once when the capture opens; addresses are spelled out when they are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from torchlens._structure import BufferEntry, Structure, join
from torchlens._values.geometry import storage_key
from torchlens._values.ghost import StorageKey
from torchlens._values.versions import version_of


@dataclass(slots=True)
class BufferSlot:
    """A buffer of a module and the tensor last seen there."""

    places: list[tuple[int, str]]
    """(module, name) under which it is held; several when modules share the tensor."""
    persistent: bool
    current: Tensor | None
    initial: Tensor | None
    index: int
    version: int | None
    rows: list[int] = field(default_factory=list[int])


_HeldParam: TypeAlias = tuple[Tensor, list[tuple[int, str]], int | None]
"""(tensor, places, version counter when the capture began)."""


class ModelState:
    """What the captured models consist of. Module 0 is the root."""

    def __init__(self, root: nn.Module | None, named: Mapping[str, nn.Module], root_name: str) -> None:
        self.modules: list[nn.Module] = []
        self.module_index: dict[int, int] = {}
        """Id of a module to its index; `index_of` for one that may be new."""
        self.slots: list[BufferSlot] = []
        self._root_name = root_name if root is None else None  # a lazy module changes its class
        self._module_places: list[list[tuple[int | None, str]]] = []
        self._outside: dict[str, int] = {}
        self._slot_of: dict[tuple[int, str], BufferSlot] = {}
        self._slots_by_tensor: dict[int, BufferSlot] = {}
        self._slots_by_storage: dict[StorageKey, list[BufferSlot]] | None = None
        self._params: dict[int, _HeldParam] = {}
        """By id of a tensor; several tensors stand for one parameter where it was replaced."""
        self._first_storages: list[tuple[Tensor, StorageKey]] = []
        """Parameters, and the storage each lay on when it was first seen."""
        self._param_at: dict[tuple[int, str], _HeldParam] = {}
        self._replacements: list[Tensor] = []
        self._params_by_storage: dict[StorageKey, list[Tensor]] | None = None
        self._params_noted = 0
        with torch._C.DisableTorchFunction():  # the user's own modes must not see our reads
            self._add(root if root is not None else nn.Module(), None, "")
            for name, model in named.items():
                self._add(model, 0, name)

    def index_of(self, module: nn.Module) -> int:
        """The module's index; one met for the first time is added, named by its class and a number."""
        index = self.module_index.get(id(module))
        if index is None:
            self.rescan()  # it may have been put into the model since
            index = self.module_index.get(id(module))
        if index is None:
            name = type(module).__name__
            number = self._outside[name] = self._outside.get(name, 0) + 1
            with torch._C.DisableTorchFunction():
                index = self._add(module, None, f"{name}_{number}")
        return index

    @property
    def module_places(self) -> list[list[tuple[int | None, str]]]:
        """By module, (holder, name) of each place where it is held."""
        return self._module_places

    @property
    def num_params(self) -> int:
        return len(self._params)

    def param_ids(self) -> frozenset[int]:
        """The ids of the parameters known now."""
        return frozenset(self._params)

    def params_alone(self) -> list[Tensor]:
        """The parameters known now that are no buffers too."""
        return [held[0] for key, held in self._params.items() if key not in self._slots_by_tensor]

    def params_elsewhere(self) -> Iterator[Tensor]:
        """The parameters that lie on another storage than when they were first seen."""
        for tensor, first in self._first_storages:
            if storage_key(tensor) != first:
                yield tensor

    def param_of(self, tensor: Tensor) -> bool:
        """Whether the tensor is a parameter of a known module."""
        return id(tensor) in self._params

    def param_address(self, tensor: Tensor) -> str | None:
        """The first address of the parameter that a tensor is; None if it is none."""
        held = self._params.get(id(tensor))
        if held is None:
            return None
        module, name = held[1][0]
        return join(self._address(module), name)

    def holds(self, tensor: Tensor) -> bool:
        """Whether the tensor is a parameter or a buffer of a known module."""
        return self.param_of(tensor) or self.slot_holding(tensor) is not None

    def slot_holding(self, tensor: Tensor) -> BufferSlot | None:
        """The buffer whose current value is this tensor object."""
        slot = self._slots_by_tensor.get(id(tensor))
        return slot if slot is not None and slot.current is tensor else None

    def slots_on(self, key: StorageKey) -> list[BufferSlot]:
        """The buffers whose current value lies in this storage."""
        if self._slots_by_storage is None:
            self._slots_by_storage = found = {}
            for slot in self.slots:
                if slot.current is not None:
                    found.setdefault(storage_key(slot.current), []).append(slot)
        return self._slots_by_storage.get(key, [])

    def buffers_moved(self) -> None:
        """Forget where buffers and parameters lie: one may have been given another storage."""
        self._slots_by_storage = None
        self._params_by_storage = None

    def reassigned(self, module: nn.Module) -> Iterator[tuple[BufferSlot, Tensor]]:
        """The buffers of a module that hold another tensor object than when last seen."""
        index = self.module_index[id(module)]
        for name, tensor in list(module._buffers.items()):
            slot = self._slot_of.get((index, name))
            if slot is None:
                self._add_buffer(index, module, name, tensor)
            elif tensor is not None and tensor is not slot.current:
                if len(slot.places) > 1:
                    slot = self._part(slot, (index, name))
                self._hold(slot, tensor)
                yield slot, tensor

    def rescan(self) -> None:
        """Take in modules, parameters and buffers that were added since."""
        with torch._C.DisableTorchFunction():  # the mode may be on
            for index, module in enumerate(list(self.modules)):
                self._add_parts(index, module)

    def params_on(self, key: StorageKey) -> list[Tensor]:
        """The parameters that lie in this storage."""
        if self._params_by_storage is None or self._params_noted != self.num_params:
            self._params_noted = self.num_params
            self._params_by_storage = found = {}
            for tensor in (*(held[0] for held in self._params.values()), *self._replacements):
                found.setdefault(storage_key(tensor), []).append(tensor)
        return self._params_by_storage.get(key, [])

    def take_up(self, module: nn.Module, made: list[nn.Parameter]) -> list[nn.Parameter]:
        """Take those of new parameters that a module holds now for its own; the others are given back."""
        held = set(map(id, module._parameters.values()))
        if any(id(param) in held for param in made):
            with torch._C.DisableTorchFunction():
                self._add_params(self.module_index[id(module)], module)
        return [param for param in made if id(param) not in held]

    def param_storages(self) -> set[StorageKey]:
        tensors = [tensor for tensor, _, _ in self._params.values()]
        return {storage_key(tensor) for tensor in (*tensors, *self._replacements)}

    def name_of(self, slot: BufferSlot) -> str:
        """The buffer's first address."""
        module, name = slot.places[0]
        return join(self._address(module), name)

    def _address(self, module: int) -> str:
        """The first address of a module."""
        parent, name = self._module_places[module][0]
        return name if parent is None else join(self._address(parent), name)

    def named_modules(self) -> Iterator[tuple[str, nn.Module]]:
        return ((self._address(at), module) for at, module in enumerate(self.modules))

    def structure(self) -> Structure:
        """Who holds what, as plain data."""
        self.rescan()
        types = [type(module).__name__ for module in self.modules]
        if self._root_name is not None:
            types[0] = self._root_name
        buffers = [
            (
                slot.places,
                BufferEntry((), slot.persistent, slot.rows, slot.initial, slot.current, slot.version),
            )
            for slot in self.slots
        ]
        training = [module.training for module in self.modules]
        params = list({id(held): held for held in self._params.values()}.values())
        numbers = {id(held): number for number, held in enumerate(params)}
        replacements = [(param, numbers[id(self._params[id(param)])]) for param in self._replacements]
        return Structure(self._module_places, types, training, params, replacements, buffers)

    def _add_params(self, index: int, module: nn.Module) -> None:
        """Take in a module's own parameters. Called where no mode sees it."""
        for name, param in module._parameters.items():
            place = index, name
            there = self._param_at.get(place)
            if there is not None and there[0] is param:  # a model is walked twice in each capture
                continue
            # `functional_call` puts other tensors there while a model runs
            is_plain = type(param) is nn.Parameter  # the class's own `isinstance` is written in Python
            if not (is_plain or isinstance(param, nn.Parameter)):
                continue
            held = self._params.get(id(param))
            if held is not None:
                if place not in held[1]:
                    held[1].append(place)
                self._param_at.setdefault(place, held)
            elif there is not None:  # as offloading does before and after each call
                self._params[id(param)] = there
                self._replacements.append(param)
            else:
                self._params[id(param)] = self._param_at[place] = param, [place], version_of(param)
                if is_plain or not is_lazy(param):
                    self._first_storages.append((param, storage_key(param)))

    def _add(self, module: nn.Module, parent: int | None, name: str) -> int:
        index = self.module_index.get(id(module))
        if index is not None:
            if (parent, name) not in self._module_places[index]:
                self._module_places[index].append((parent, name))
            return index
        index = self.module_index[id(module)] = len(self.modules)
        self.modules.append(module)
        self._module_places.append([(parent, name)])
        self._add_parts(index, module)
        return index

    def _add_parts(self, index: int, module: nn.Module) -> None:
        if module._parameters:
            self._add_params(index, module)
        for name, buffer in module._buffers.items():
            if (index, name) not in self._slot_of:
                self._add_buffer(index, module, name, buffer)
        for name, child in module._modules.items():
            if child is not None:
                self._add(child, index, name)

    def _add_buffer(self, index: int, module: nn.Module, name: str, buffer: Tensor | None) -> None:
        slot = self._slots_by_tensor.get(id(buffer)) if buffer is not None else None
        if slot is not None:
            slot.places.append((index, name))
        else:
            version = None if buffer is None else version_of(buffer)
            persistent = name not in module._non_persistent_buffers_set
            slot = BufferSlot([(index, name)], persistent, buffer, buffer, len(self.slots), version)
            self.slots.append(slot)
            if buffer is not None:
                self._slots_by_tensor[id(buffer)] = slot
        self._slot_of[index, name] = slot
        self.buffers_moved()

    def _part(self, slot: BufferSlot, place: tuple[int, str]) -> BufferSlot:
        """A slot of its own for one of several places that held the same tensor until now."""
        slot.places.remove(place)
        parted = BufferSlot(
            [place], slot.persistent, slot.current, slot.current, len(self.slots), slot.version
        )
        self.slots.append(parted)
        self._slot_of[place] = parted
        self.buffers_moved()
        return parted

    def _hold(self, slot: BufferSlot, tensor: Tensor) -> None:
        slot.current = tensor
        self.buffers_moved()
        self._slots_by_tensor[id(tensor)] = slot
