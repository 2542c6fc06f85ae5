"""Where the tensors of a nested value stand in it, as Python spells the way there: `["image"][0].hidden`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, cast

from torchlens._values.ghost import RECORDED, Recorded
from torchlens._values.plain import replaced

_LONGEST_NUMBER: Final = 64
"""Bits of a key that is spelled in decimal: Python refuses to spell very long ones."""

_tuple_items = cast("Callable[[Any], Iterator[Any]]", tuple.__iter__)


def paths_in(value: Any) -> Iterator[tuple[str, Recorded]]:
    """The tensors in a value's known containers, in order, each with the path to it; empty for the value.

    >>> import torch
    >>> [path for path, _ in paths_in({"image": [torch.zeros(1)], 3: (None, torch.zeros(1))})]
    ['["image"][0]', '[3][1]']
    """
    return _paths(replaced(value, lambda tensor: tensor), "")  # known containers only, and no user's code


def _paths(value: Any, path: str) -> Iterator[tuple[str, Recorded]]:
    if issubclass(cast("type[object]", type(value)), RECORDED):
        yield path, value
        return
    for step, item in _steps(value):
        yield from _paths(item, path + step)


def _steps(value: Any) -> Iterator[tuple[str, Any]]:
    """The items of plain data, each with how it is reached."""
    kind = cast("type[Any]", type(value))
    if issubclass(kind, tuple):
        items = tuple(_tuple_items(value))
        yield from zip(
            _fields_of(cast("type[object]", kind), len(items)) or [f"[{at}]" for at in range(len(items))],
            items,
        )
    elif kind is list:
        for at, item in enumerate(value):
            yield f"[{at}]", item
    elif hasattr(kind, "__dataclass_fields__"):  # of a ModelOutput, which is a dict as well, too
        for field in cast("Mapping[str, object]", kind.__dataclass_fields__):
            try:
                item = object.__getattribute__(value, field)
            except Exception:  # noqa: BLE001 - it was never set, or a descriptor raises anything
                continue
            yield f".{field}", item
    elif issubclass(kind, dict):
        for key, item in value.items():
            yield f"[{_spelled(key)}]", item
    elif kind is slice:
        for part in ("start", "stop", "step"):
            yield f".{part}", getattr(value, part)


def _fields_of(kind: type[object], length: int) -> list[str] | None:
    """The steps to the items of a named tuple; None for any other."""
    fields: object = getattr(kind, "_fields", None)
    if not isinstance(fields, tuple) or len(cast("tuple[object, ...]", fields)) != length:
        return None
    return [f".{field}" for field in cast("tuple[object, ...]", fields)]


def _spelled(key: object) -> str:
    if type(key) is str:
        return json.dumps(key, ensure_ascii=not key.isprintable())
    if type(key) is int and key.bit_length() > _LONGEST_NUMBER:
        return hex(key)
    return repr(key)
