"""Under which name the code can reach a tensor that no recorded call made."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from types import FrameType, FunctionType, GetSetDescriptorType, MemberDescriptorType, MethodType
from typing import Any, Final, cast

from torch import Tensor, nn

from torchlens._keys.lookups import variables

_DEPTH: Final = 4
_MAX_VISITED: Final = 20_000
_MOST_PARTS: Final = 1_000
"""How much of one container is looked at: a list of a million numbers holds no name for a tensor."""
_NO_ATTRIBUTES = (int, float, complex, str, bytes, bool, type(None), type, Tensor)
_KEEPING: Final = (Tensor, dict, list, tuple)
_Cached: Final = cast("type[object]", type(lru_cache(len)))
_Wrapping: Final = (staticmethod, classmethod)


def find_name(tensor: Tensor, roots: Iterator[tuple[str, object]], *, max_depth: int = _DEPTH) -> str | None:
    """The first dotted name under which `tensor` is reached from the roots, nearest first.

    Attributes, lists, tuples and dicts are followed to some depth, through instance dictionaries only, so
    that none of the user's code runs.
    """
    queue: deque[tuple[str, object, int]] = deque((name, value, 0) for name, value in roots)
    visited: set[int] = set()
    while queue and len(visited) < _MAX_VISITED:
        name, value, depth = queue.popleft()
        if value is tensor:
            return name
        if depth < max_depth and not issubclass(type(value), _NO_ATTRIBUTES) and id(value) not in visited:
            visited.add(id(value))
            parts = islice(_parts(name, value), _MOST_PARTS)
            queue.extend((inner, item, depth + 1) for inner, item in parts)
    return None


def frame_roots(frame: FrameType | None, last: FrameType | None) -> Iterator[tuple[str, object]]:
    """The names that the frames from `frame` outwards to `last` can use.

    Locals and closures, then globals, then what the classes of the locals have under the names used.
    """
    while frame is not None:
        local = variables(frame)
        yield from local.items()
        names = frame.f_code.co_names
        yield from ((name, frame.f_globals[name]) for name in names if name in frame.f_globals)
        for holder, value in local.items():
            yield from _class_parts(holder, value, names)
        if frame is last:
            return
        frame = frame.f_back


def module_roots(modules: Iterator[tuple[str, nn.Module]]) -> Iterator[tuple[str, object]]:
    """The attributes of modules, named by address."""
    for address, module in modules:
        for name, value in vars(module).items():
            if not name.startswith("_") or name not in _MODULE_TABLES:
                yield f"{address}.{name}" if address else name, value


def _class_parts(holder: str, value: object, names: tuple[str, ...]) -> Iterator[tuple[str, object]]:
    for owner in type(value).__mro__:
        yield from ((f"{holder}.{name}", vars(owner)[name]) for name in names if name in vars(owner))


_MODULE_TABLES = frozenset(vars(nn.Module()))


def _parts(name: str, value: object) -> Iterator[tuple[str, object]]:
    """What a value holds, by name. Only its type is asked: `isinstance` and `hasattr` can run its code."""
    kind = type(value)
    held: Any = value
    if issubclass(kind, dict):
        entries = cast("Iterator[tuple[object, object]]", dict.items(held))
        for at, (key, item) in enumerate(list(islice(entries, _MOST_PARTS))):
            yield f"{name}[{key!r}]" if type(key) in (str, int) else f"{name}[key {at}]", item
    elif issubclass(kind, (list, tuple)):
        items = cast("Iterator[object]", (list if issubclass(kind, list) else tuple).__iter__(held))
        yield from ((f"{name}[{at}]", item) for at, item in enumerate(items))
    elif kind is FunctionType or kind is MethodType:
        yield from _function_parts(name, held)
    elif kind is _Cached:
        yield from _cached_parts(name, held)
    elif kind is property:
        yield name, held.fget
    elif kind in _Wrapping:
        yield name, held.__func__
    else:
        attributes = attributes_of(value)
        if "__path__" not in attributes:  # packages lead everywhere
            yield from ((f"{name}.{key}", item) for key, item in list(attributes.items()))
        yield from _slots(name, value)


def _cached_parts(name: str, function: object) -> Iterator[tuple[str, object]]:
    """What `functools.lru_cache` and `cache` keep: only the garbage collector is told."""
    for at, held in enumerate(gc.get_referents(function)):
        if type(held) is dict:  # of a cache without bound, by arguments
            values = list(cast("dict[object, object]", held).values())
            yield from ((f"{name}.cache[{key}]", item) for key, item in enumerate(values))
        else:
            yield f"{name}.cache[{at}]", held


def attributes_of(value: object) -> dict[str, object]:
    """What an object's own dictionary holds, read without running code of its class; empty without one."""
    for owner in type(value).__mro__:
        descriptor = vars(owner).get("__dict__")
        if descriptor is not None:
            if type(descriptor) not in (GetSetDescriptorType, MemberDescriptorType):  # a user's property
                return {}
            attributes = descriptor.__get__(value)
            return cast("dict[str, object]", attributes) if type(attributes) is dict else {}
    return {}


def _slots(name: str, value: object) -> Iterator[tuple[str, object]]:
    for owner in type(value).__mro__:
        for key, slot in list(vars(owner).items()):
            if type(slot) is MemberDescriptorType and owner.__module__ != "builtins":
                try:
                    yield f"{name}.{key}", slot.__get__(value)
                except AttributeError:  # not assigned yet
                    continue


def _function_parts(name: str, function: Any) -> Iterator[tuple[str, object]]:
    cells = function.__closure__ or ()
    for free, cell in zip(function.__code__.co_freevars, cells):
        try:
            content = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
        yield f"{name}.{free}", content
    for at, default in enumerate(function.__defaults__ or ()):
        yield f"{name}.default[{at}]", default
    keyword_defaults: dict[str, object] = function.__kwdefaults__ or {}
    yield from ((f"{name}.{key}", item) for key, item in keyword_defaults.items())
    scope: dict[str, object] = function.__globals__
    for key in function.__code__.co_names:  # what a function gives may be kept in its module
        if issubclass(type(scope.get(key)), _KEEPING):
            yield f"{name}.{key}", scope[key]
