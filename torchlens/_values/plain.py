"""Arguments and outputs as plain data: tensors by reference, known containers copied, nothing else held."""

from __future__ import annotations

import dataclasses
import enum
import types
from collections import OrderedDict, UserDict
from collections.abc import Callable
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from torchlens._records import Opaque

_MAX_DEPTH: Final = 32
"""Containers nested deeper than this are not walked."""

SCALARS: Final = frozenset(
    {int, float, bool, complex, str, bytes, type(None), type(Ellipsis)}
    | {torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, torch.Generator}
)
"""Types whose values are kept as they are: immutable and holding nothing else."""

Each: TypeAlias = Callable[[Tensor], Any]


def plain(value: object, each: Each, path: tuple[int, ...] = ()) -> Any:
    """`value` as plain data, with what `each` gives for each tensor in it, in order.

    `path` holds the ids of the containers around it: one that contains itself ends there.
    """
    if isinstance(value, Tensor):
        return each(value)
    kind = type(value)
    if kind in SCALARS:
        return value
    if id(value) in path or len(path) > _MAX_DEPTH:
        return opaque(value)
    path = (*path, id(value))
    held: Any = value
    if kind is tuple:
        return tuple([plain(item, each, path) for item in held])
    if kind is list:
        return [plain(item, each, path) for item in held]
    if kind is dict:
        return {_plain_key(key): plain(item, each, path) for key, item in held.items()}
    if kind is slice:
        return slice(*(plain(part, each, path) for part in (held.start, held.stop, held.step)))
    return _walker(kind)(value, lambda item: plain(item, each, path))


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors in a value's known containers, in order; the same tensor as often as it occurs."""
    found: list[Tensor] = []

    def add(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    plain(value, add)
    return found


def opaque(value: object) -> Opaque:
    """What stands for an object that is not kept: its type's name and a text that runs none of its code."""
    kind = type(value)
    if isinstance(value, enum.Enum):
        return Opaque(kind.__qualname__, f"{kind.__qualname__}.{value.name}")
    if isinstance(value, (types.FunctionType, types.BuiltinFunctionType, type)):
        return Opaque(kind.__qualname__, f"<{kind.__qualname__} {value.__name__}>")
    return Opaque(kind.__qualname__, f"<{kind.__module__}.{kind.__qualname__}>")


def _plain_key(key: object) -> object:
    if type(key) in SCALARS:
        return key
    named = opaque(key)
    return Opaque(named.type_name, named.text)


_Item: TypeAlias = Callable[[Any], Any]


_walkers: WeakKeyDictionary[type, Callable[[Any, _Item], Any]] = WeakKeyDictionary()
"""How values of a type are made plain: asked once a type, as the answer takes many questions."""


def _walker(kind: type[Any]) -> Callable[[Any, _Item], Any]:
    walker = _walkers.get(kind)
    if walker is None:
        walker = _walkers[kind] = _find_walker(kind)
    return walker


def _find_walker(kind: type[Any]) -> Callable[[Any, _Item], Any]:
    if hasattr(kind, "_fields") and tuple in kind.__mro__:  # named tuples, PackedSequence among them
        return lambda value, each: type(value)(*(each(item) for item in tuple(value)))
    if kind.__base__ is tuple:  # torch.return_types and user subclasses
        return lambda value, each: tuple([each(item) for item in value])
    if kind.__base__ is list:
        return lambda value, each: [each(item) for item in value]
    if hasattr(kind, "__dataclass_fields__"):
        return _dataclass
    if issubclass(kind, OrderedDict):
        return lambda value, each: OrderedDict((_plain_key(key), each(item)) for key, item in value.items())
    if issubclass(kind, (dict, UserDict)):
        return lambda value, each: {_plain_key(key): each(item) for key, item in value.items()}
    if issubclass(kind, np.generic):
        return lambda value, each: value.item()
    return lambda value, each: opaque(value)


def _dataclass(value: object, each: _Item) -> Any:
    """A copy of the dataclass that shares no mutable part with it; made without calling its code."""
    held: Any = value
    kind = type(value)
    copied: Any = kind.__new__(kind)
    is_dict = issubclass(kind, dict)
    mapping: type[dict[str, Any]] = OrderedDict if issubclass(kind, OrderedDict) else dict
    for field in dataclasses.fields(held):
        if hasattr(held, field.name):
            item = each(getattr(held, field.name))
            object.__setattr__(copied, field.name, item)
            if is_dict and field.name in held:  # ModelOutput is a dict of its fields
                mapping.__setitem__(copied, field.name, item)
    return copied
