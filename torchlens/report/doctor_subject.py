"""What the doctor looks at: a model's modules and tensors, and the inputs, walked once; nothing is run."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import torch
from torch import Tensor, nn

from torchlens._capture.unwrapping import root_of, unwrapped
from torchlens._values.plain import SCALARS

Status: TypeAlias = Literal["ok", "limited", "refused", "not tested"]

_DEEPEST_INPUT = 8


class Sign(NamedTuple):
    """One thing that a check found."""

    status: Status
    found: str
    advice: str = ""
    """What to do about it."""


class NamedModule(NamedTuple):
    """A module under its first address; prints as both."""

    address: str
    module: nn.Module

    def __str__(self) -> str:
        name = type(self.module).__name__
        return f"{self.address} ({name})" if self.address else name


class NamedTensor(NamedTuple):
    """A parameter or buffer by its address, an input by its place among the inputs: `0`, `0.mask`."""

    address: str
    tensor: Tensor


@dataclass(frozen=True)
class Subject:
    """A model and its inputs; both may be missing."""

    given: object
    """The model as it was given; None for the environment alone."""
    model: object
    """Without the wrappers that a capture takes off."""
    modules: tuple[NamedModule, ...]
    """Each once, the root first."""
    params: tuple[NamedTensor, ...]
    """By every address: a tied one has several entries."""
    buffers: tuple[NamedTensor, ...]
    inputs: tuple[NamedTensor, ...] | None
    objects: tuple[object, ...]
    """What is among the inputs and is neither a tensor, a container nor a plain value."""

    @property
    def name(self) -> str:
        """The model's class or function."""
        if self.model is None:
            return "environment"
        root = root_of(self.model)
        return type(root).__name__ if root is not None else _function_name(self.model)


def examine(model: object, inputs: object, input_kwargs: Mapping[str, object] | None = None) -> Subject:
    """Walk a model and inputs as `tl.trace` would take them; without inputs, pass None."""
    inside: object = unwrapped(cast("Callable[..., Any]", model)) if callable(model) else model
    modules = tuple(_modules(root_of(inside), "", set()))
    alone: tuple[object, ...] = () if inputs is None else (inputs,)
    args = cast("tuple[object, ...]", inputs) if type(inputs) is tuple else alone
    given = [*((str(at), value) for at, value in enumerate(args)), *(input_kwargs or {}).items()]
    found = [part for name, value in given for part in _parts(value, name)]
    held = tuple(NamedTensor(name, cast("Tensor", v)) for name, v in found if issubclass(type(v), Tensor))
    return Subject(
        given=model,
        model=inside,
        modules=modules,
        params=tuple(_tensors(modules, "_parameters")),
        buffers=tuple(_tensors(modules, "_buffers")),
        inputs=None if inputs is None and not input_kwargs else held,
        objects=tuple(value for _, value in found if not issubclass(type(value), Tensor)),
    )


def _function_name(model: object) -> str:
    """The name of a function; of any other object that of its class, as asking the object runs its code."""
    if isinstance(model, (FunctionType, BuiltinFunctionType, MethodType)):
        return model.__name__
    return type(model).__name__


def _modules(module: nn.Module | None, address: str, seen: set[int]) -> Iterator[NamedModule]:
    if module is None or id(module) in seen:
        return
    seen.add(id(module))
    yield NamedModule(address, module)
    if isinstance(module, torch.jit.ScriptModule):
        return
    children = cast("Mapping[str, nn.Module | None]", vars(module).get("_modules", {}))
    for name, child in children.items():
        yield from _modules(child, f"{address}.{name}" if address else name, seen)


def _tensors(modules: tuple[NamedModule, ...], table: str) -> Iterator[NamedTensor]:
    for address, module in modules:
        held = cast("Mapping[str, Tensor | None]", vars(module).get(table, {}))
        for name, tensor in held.items():
            if tensor is not None:
                yield NamedTensor(f"{address}.{name}" if address else name, tensor)


def _parts(value: object, name: str, depth: int = 0) -> Iterator[tuple[str, object]]:
    """The tensors and the objects in an input, through the containers that a capture walks too."""
    if issubclass(type(value), Tensor):
        yield name, value
    elif type(value) in SCALARS or depth > _DEEPEST_INPUT:
        return
    else:
        items = _items(value)
        if items is None:
            yield name, value
        else:
            for key, item in items:
                yield from _parts(item, f"{name}.{key}", depth + 1)


_tuple_items = cast("Callable[[Any], Iterator[object]]", tuple.__iter__)
_list_items = cast("Callable[[Any], Iterator[object]]", list.__iter__)
_dict_items = cast("Callable[[Any], Iterable[tuple[object, object]]]", dict.items)


def _items(value: Any) -> list[tuple[object, object]] | None:
    """What a container holds, read through the built-in base: none of a user's code runs."""
    kind = cast("type[Any]", type(value))
    if issubclass(kind, tuple):
        return list(enumerate(_tuple_items(value)))
    if issubclass(kind, list):
        return list(enumerate(_list_items(value)))
    if "__dataclass_fields__" in dir(kind):
        return list(_fields(value, kind))
    if issubclass(kind, dict):
        return list(_dict_items(value))
    if issubclass(kind, UserDict):
        return list(_dict_items(value.data))
    return None


def _fields(value: object, kind: type[Any]) -> Iterator[tuple[str, object]]:
    for name in kind.__dataclass_fields__:
        with suppress(AttributeError):  # not assigned
            yield name, object.__getattribute__(value, name)
