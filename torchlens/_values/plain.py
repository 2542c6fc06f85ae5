"""Arguments and outputs as plain data: tensors by reference, known containers copied, nothing else held."""

from __future__ import annotations

import dataclasses
import enum
import types
from collections import OrderedDict, UserDict
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from torchlens._records import Opaque

_MAX_DEPTH: Final = 32
"""Containers nested deeper than this are not walked: they may contain themselves."""

SCALARS: Final = frozenset(
    {int, float, bool, complex, str, bytes, type(None), type(Ellipsis), torch.dtype, torch.device, torch.layout}
    | {torch.memory_format, torch.Size, torch.Generator}
)
"""Types whose values are kept as they are: immutable and holding nothing else."""
Each = Callable[[Tensor], Any]


def plain(value: Any, each: Each, depth: int = 0) -> Any:
    """`value` as plain data, with what `each` gives for each tensor in it, in order."""
    if isinstance(value, Tensor):
        return each(value)
    kind = type(value)
    if kind in SCALARS:
        return value
    if depth > _MAX_DEPTH:
        return opaque(value)
    if kind is tuple:
        return tuple([plain(item, each, depth + 1) for item in value])
    if kind is list:
        return [plain(item, each, depth + 1) for item in value]
    if kind is dict:
        return {_plain_key(key): plain(item, each, depth + 1) for key, item in value.items()}
    if kind is slice:
        return slice(*(plain(part, each, depth + 1) for part in (value.start, value.stop, value.step)))
    return _other_container(value, lambda item: plain(item, each, depth + 1))


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
    name = type(value).__qualname__
    if isinstance(value, enum.Enum):
        text = f"{name}.{value.name}"
    elif isinstance(value, (types.FunctionType, types.BuiltinFunctionType, type)):
        text = f"<{name} {value.__name__}>"
    else:
        text = f"<{type(value).__module__}.{name}>"
    return Opaque(name, text)


def _plain_key(key: object) -> object:
    return key if type(key) in SCALARS else opaque(key)


def _other_container(value: Any, each: Callable[[Any], Any]) -> Any:
    if isinstance(value, torch.nn.utils.rnn.PackedSequence):
        return torch.nn.utils.rnn.PackedSequence(*(each(part) for part in tuple(value)))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(each(item) for item in value))
    if isinstance(value, (tuple, list)):  # torch.return_types and user subclasses
        return type(value).__base__([each(item) for item in value]) if _is_exact_base(value) else opaque(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _dataclass(value, each)
    if isinstance(value, OrderedDict):
        return OrderedDict((_plain_key(key), each(item)) for key, item in value.items())
    if isinstance(value, (dict, UserDict)):
        return {_plain_key(key): each(item) for key, item in value.items()}
    if isinstance(value, np.generic):
        return value.item()
    return opaque(value)


def _is_exact_base(value: object) -> bool:
    return type(value).__base__ in (tuple, list)


def _dataclass(value: Any, each: Callable[[Any], Any]) -> Any:
    """A copy of the dataclass that shares no mutable part with it; made without calling its code."""
    copied = type(value).__new__(type(value))
    store = OrderedDict.__setitem__ if isinstance(value, OrderedDict) else dict.__setitem__
    for field in dataclasses.fields(value):
        if hasattr(value, field.name):
            item = each(getattr(value, field.name))
            object.__setattr__(copied, field.name, item)
            if isinstance(value, dict) and field.name in value:  # ModelOutput is a dict of its fields
                store(copied, field.name, item)
    return copied
