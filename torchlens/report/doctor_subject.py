"""What the doctor looks at: a model's modules and tensors, and the inputs, walked once; nothing is run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
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


def examine(model: object, inputs: object) -> Subject:
    """Walk a model and inputs as `tl.trace` would take them; without inputs, pass None."""
    inside: object = unwrapped(cast("Callable[..., Any]", model)) if callable(model) else model
    modules = tuple(_modules(root_of(inside), "", set()))
    args = cast("tuple[object, ...]", inputs if type(inputs) is tuple else (inputs,))
    found = [part for at, value in enumerate(args) for part in _parts(value, str(at))]
    held = tuple(NamedTensor(name, value) for name, value in found if isinstance(value, Tensor))
    return Subject(
        given=model,
        model=inside,
        modules=modules,
        params=tuple(_tensors(modules, "_parameters")),
        buffers=tuple(_tensors(modules, "_buffers")),
        inputs=None if inputs is None else held,
        objects=tuple(value for _, value in found if not isinstance(value, Tensor)),
    )


def _function_name(model: object) -> str:
    named: object = vars(model).get("__name__") if hasattr(model, "__dict__") else None
    own = model.__name__ if callable(model) and hasattr(model, "__name__") else named
    return own if isinstance(own, str) else type(model).__name__


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
    if isinstance(value, Tensor):
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


def _items(value: object) -> list[tuple[object, object]] | None:
    if isinstance(value, (tuple, list)):
        return list(enumerate(cast("list[object]", value)))
    if isinstance(value, dict):
        return list(cast("dict[object, object]", value).items())
    if "__dataclass_fields__" in dir(type(value)):
        fields = cast("dict[str, object]", type(value).__dict__.get("__dataclass_fields__", {}))
        held = vars(value) if hasattr(value, "__dict__") else {}
        return [(name, held[name]) for name in fields if name in held]
    return None
