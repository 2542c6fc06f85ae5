"""The modules, parameters and buffers of the captured models, each known by identity and by address."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from torch import Tensor, nn

from torchlens._records import BufferEntry, ModuleEntry, ParamEntry
from torchlens._values.geometry import StorageKey, storage_key


@dataclass(slots=True)
class BufferSlot:
    """A buffer's name in a module and the tensor last seen there."""

    addresses: list[str]
    persistent: bool
    current: Tensor | None
    initial: Tensor | None
    index: int
    rows: list[int] = field(default_factory=list)


@dataclass(slots=True)
class KnownModule:
    module: nn.Module
    addresses: list[str]
    parent: int | None
    in_model: bool
    children: list[int] = field(default_factory=list)
    params: list[int] = field(default_factory=list)
    buffers: list[int] = field(default_factory=list)


class ModelState:
    """What the captured models consist of. Module 0 is the root."""

    def __init__(self, root: nn.Module | None, named: Mapping[str, nn.Module], root_name: str) -> None:
        self.modules: list[KnownModule] = []
        self.params: list[ParamEntry] = []
        self.slots: list[BufferSlot] = []
        self._param_addresses: list[list[str]] = []
        self._root_name = root_name
        self.module_index: dict[int, int] = {}
        """Id of a module to its index; `index_of` for one that may be new."""
        self._param_index: dict[int, int] = {}
        self._slot_of: dict[tuple[int, str], BufferSlot] = {}
        self._slots_by_tensor: dict[int, BufferSlot] = {}
        self._outside: dict[str, int] = {}
        self._add(root if root is not None else nn.Module(), "", None, True)
        for name, model in named.items():
            self.modules[0].children.append(self._add(model, name, 0, True))

    def index_of(self, module: nn.Module) -> int:
        """The module's index; one met for the first time is added, named by its class and a number."""
        index = self.module_index.get(id(module))
        if index is None:
            name = type(module).__name__
            number = self._outside[name] = self._outside.get(name, 0) + 1
            index = self._add(module, f"{name}_{number}", None, False)
        return index

    def param_of(self, tensor: Tensor) -> int | None:
        return self._param_index.get(id(tensor))

    def slot_holding(self, tensor: Tensor) -> BufferSlot | None:
        """The buffer whose current value is this tensor object."""
        slot = self._slots_by_tensor.get(id(tensor))
        return slot if slot is not None and slot.current is tensor else None

    def slots_on(self, key: StorageKey) -> list[BufferSlot]:
        """The buffers whose current value lies in this storage."""
        return [slot for slot in self.slots if slot.current is not None and storage_key(slot.current) == key]

    def reassigned(self, module: nn.Module) -> Iterator[tuple[BufferSlot, Tensor]]:
        """The buffers of a module that hold another tensor object than when last seen."""
        for name, tensor in list(module._buffers.items()):
            slot = self._slot_of.get((id(module), name))
            if slot is None:
                self.rescan()
            elif tensor is not None and tensor is not slot.current:
                self.hold(slot, tensor)
                yield slot, tensor

    def hold(self, slot: BufferSlot, tensor: Tensor) -> None:
        slot.current = tensor
        self._slots_by_tensor[id(tensor)] = slot
        if slot.initial is None:
            slot.initial = tensor

    def rescan(self) -> None:
        """Take in modules, parameters and buffers that were added since."""
        for index in range(len(self.modules)):
            known = self.modules[index]
            if known.in_model:
                self._add_parts(known.module, index)

    def param_storages(self) -> set[StorageKey]:
        return {storage_key(entry.tensor) for entry in self.params}

    def named_modules(self) -> Iterator[tuple[str, nn.Module]]:
        return ((known.addresses[0], known.module) for known in self.modules)

    def module_entries(self) -> list[ModuleEntry]:
        entries = [
            ModuleEntry(
                tuple(known.addresses),
                type(known.module).__name__,
                known.parent,
                tuple(known.children),
                tuple(known.params),
                tuple(known.buffers),
                known.module.training,
                known.in_model,
            )
            for known in self.modules
        ]
        entries[0].type_name = self._root_name
        return entries

    def param_entries(self) -> list[ParamEntry]:
        for entry, addresses in zip(self.params, self._param_addresses):
            entry.addresses = tuple(addresses)
        return self.params

    def buffer_entries(self) -> list[BufferEntry]:
        return [
            BufferEntry(tuple(slot.addresses), slot.persistent, slot.rows, slot.initial, slot.current)
            for slot in self.slots
        ]

    def _add(self, module: nn.Module, address: str, parent: int | None, in_model: bool) -> int:
        known = self.module_index.get(id(module))
        if known is not None:
            self._add_alias(known, address)
            return known
        index = self.module_index[id(module)] = len(self.modules)
        self.modules.append(KnownModule(module, [address], parent, in_model))
        self._add_parts(module, index)
        return index

    def _add_alias(self, index: int, address: str) -> None:
        """A shared module: it and all its parts have one address more."""
        known = self.modules[index]
        if address in known.addresses or any(_is_inside(address, own) for own in known.addresses):
            return
        known.addresses.append(address)
        for name, child in known.module._modules.items():
            if child is not None and id(child) in self.module_index:
                self._add_alias(self.module_index[id(child)], _join(address, name))
        for name, param in known.module._parameters.items():
            if param is not None and id(param) in self._param_index:
                self._param_addresses[self._param_index[id(param)]].append(_join(address, name))
        for name in known.module._buffers:
            if slot := self._slot_of.get((id(known.module), name)):
                slot.addresses.append(_join(address, name))

    def _add_parts(self, module: nn.Module, index: int) -> None:
        known = self.modules[index]
        prefix = known.addresses[0]
        for name, param in module._parameters.items():
            if param is not None:
                self._add_param(param, _join(prefix, name), known)
        for name, buffer in module._buffers.items():
            self._add_buffer(module, name, buffer, known)
        for name, child in module._modules.items():
            if child is not None:
                at = self.module_index.get(id(child))
                if at is None or at not in known.children:
                    known.children.append(self._add(child, _join(prefix, name), index, known.in_model))

    def _add_param(self, param: Tensor, address: str, known: KnownModule) -> None:
        index = self._param_index.get(id(param))
        if index is None:
            index = self._param_index[id(param)] = len(self.params)
            version = None if param.is_inference() else param._version
            self.params.append(ParamEntry((), param, version))
            self._param_addresses.append([])
        if address not in self._param_addresses[index]:
            self._param_addresses[index].append(address)
        if index not in known.params:
            known.params.append(index)

    def _add_buffer(self, module: nn.Module, name: str, buffer: Tensor | None, known: KnownModule) -> None:
        if (id(module), name) in self._slot_of:
            return
        address = _join(known.addresses[0], name)
        slot = self._slots_by_tensor.get(id(buffer)) if buffer is not None else None
        if slot is not None:
            slot.addresses.append(address)
        else:
            persistent = name not in module._non_persistent_buffers_set
            slot = BufferSlot([address], persistent, buffer, buffer, len(self.slots))
            self.slots.append(slot)
            if buffer is not None:
                self._slots_by_tensor[id(buffer)] = slot
        self._slot_of[id(module), name] = slot
        known.buffers.append(slot.index)


def _is_inside(address: str, container: str) -> bool:
    """Whether a module would contain itself: following it would never end."""
    return not container or address.startswith(f"{container}.")


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name
