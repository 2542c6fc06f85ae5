"""Arguments and outputs as plain data: tensors by reference, known containers copied, nothing else held."""

from __future__ import annotations

import enum
import types
from collections import OrderedDict, UserDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias, cast
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from torchlens._records import Opaque
from torchlens._values.ghost import RECORDED, Recorded

_MAX_DEPTH: Final = 32
"""Containers nested deeper than this are not walked."""

SCALARS: Final = frozenset(
    {int, float, bool, complex, str, bytes, type(None), type(Ellipsis)}
    | {torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, torch.Generator}
)
"""Types whose values are kept as they are: immutable and holding nothing else."""

Each: TypeAlias = Callable[[Tensor], Any]


def plain(value: Any, each: Each, path: tuple[int, ...] = ()) -> Any:
    """`value` as plain data, with what `each` gives for each tensor in it, in order.

    `path` holds the ids of the containers around it: one that contains itself ends there.
    """
    kind = cast("type[Any]", type(value))
    if issubclass(kind, RECORDED):  # `isinstance` would run a user object's `__class__`
        return each(value)
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


def replaced(value: Any, each: Callable[[Recorded], Any]) -> Any:
    """Recorded data with what `each` gives for each tensor in it, be it kept or not."""
    return plain(value, cast("Each", each))


def recorded_in(value: Any) -> list[Recorded]:
    """The tensors in recorded data, in order, be they kept or not."""
    return cast("list[Recorded]", tensors_in(value))


def opaque(value: Any) -> Opaque:
    """What stands for an object that is not kept: its type's name and a text that runs none of its code."""
    kind = cast("type[object]", type(value))
    name = kind.__qualname__
    if issubclass(kind, enum.Enum):
        return Opaque(name, f"{name}.{value._name_}")
    if issubclass(kind, (types.FunctionType, types.BuiltinFunctionType, type)):
        return Opaque(name, f"<{name} {value.__name__}>")
    return Opaque(name, f"<{kind.__module__}.{name}>")


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


_tuple_items = cast("Callable[[Any], Iterator[Any]]", tuple.__iter__)
_list_items = cast("Callable[[Any], Iterator[Any]]", list.__iter__)
_dict_items = cast("Callable[[Any], Iterable[tuple[Any, Any]]]", dict.items)


def _find_walker(kind: type[object]) -> Callable[[Any, _Item], Any]:
    """Each walker reads and builds through the built-in base, so that no code of a user's class runs."""
    if tuple in kind.__mro__:
        return _named_tuple if hasattr(kind, "_fields") else _tuple
    if issubclass(kind, list):
        return lambda value, each: [each(item) for item in _list_items(value)]
    if "__dataclass_fields__" in dir(kind):
        return _dataclass
    if issubclass(kind, OrderedDict):
        return lambda value, each: OrderedDict(_items(value, each))
    if issubclass(kind, dict):
        return lambda value, each: dict(_items(value, each))
    if issubclass(kind, UserDict):
        return lambda value, each: dict(_items(value.data, each))
    if issubclass(kind, np.generic):
        return lambda value, each: value.item()
    if kind is type:  # `dtype=float`
        return lambda value, each: value if value in (bool, int, float, complex) else opaque(value)
    return lambda value, each: opaque(value)


def _tuple(value: Any, each: _Item) -> tuple[Any, ...]:
    return tuple([each(item) for item in _tuple_items(value)])


def _named_tuple(value: Any, each: _Item) -> Any:  # PackedSequence among them
    make = cast("Callable[[Any, list[Any]], Any]", getattr(tuple, "__new__"))  # noqa: B009 - typed by hand
    return make(type(value), [each(item) for item in _tuple_items(value)])


def _items(value: dict[Any, Any], each: _Item) -> list[tuple[object, Any]]:
    return [(_plain_key(key), each(item)) for key, item in _dict_items(value)]


def _dataclass(value: Any, each: _Item) -> Any:
    """A copy of the dataclass that shares no mutable part with it; made without calling its code."""
    kind = cast("type[object]", type(value))
    is_dict = issubclass(kind, dict)  # ModelOutput is a dict of its fields
    base: Any = OrderedDict if issubclass(kind, OrderedDict) else dict if is_dict else object
    copied = base.__new__(kind)
    fields: dict[str, object] = value.__dataclass_fields__
    for name in fields:
        try:
            held = object.__getattribute__(value, name)
        except Exception:  # noqa: BLE001 - a field may be a descriptor that raises anything
            continue
        item = each(held)
        object.__setattr__(copied, name, item)
        if is_dict and any(key == name for key, _ in _dict_items(value)):
            base.__setitem__(copied, name, item)
    return copied
