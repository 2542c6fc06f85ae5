"""Which torch functions no selector can mean, however they are called: known from their names alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torchlens._keys.names import operation_of, torch_name, type_of
from torchlens._keys.spelling import is_spelled_as_named
from torchlens._terms import LABEL, All, AnyOf, Func, Key, Label, ModuleOutput, Not, Selector


def can_be_meant(selectors: Sequence[Selector], func: Callable[..., Any]) -> bool:
    """Whether right after a call of the function one of the selectors may mean it.

    What a module returns is meant when it returns.
    """
    name = torch_name(func)
    known: set[str] | None = {name, type_of(name), operation_of(name)}
    if not is_spelled_as_named(name):
        known = None
    return any(_matches(selector, known, type_of(name)) is not False for selector in selectors)


def _matches(selector: Selector, names: set[str] | None, type_: str) -> bool | None:
    """What a selector says of every call of a function; None where it depends on the call.

    `names` are those that the function has; None for an operator, which may be written in other ways.
    """
    if isinstance(selector, All):
        found = [_matches(part, names, type_) for part in selector.of]
        return False if False in found else None if None in found else True
    if isinstance(selector, AnyOf):
        found = [_matches(part, names, type_) for part in selector.of]
        return True if True in found else None if None in found else False
    if isinstance(selector, Not):
        found = None if isinstance(selector.of, (ModuleOutput, Key)) else _matches(selector.of, names, type_)
        return None if found is None else not found
    if isinstance(selector, Func):
        return None if names is None else selector.name in names
    if isinstance(selector, ModuleOutput):
        return False
    if isinstance(selector, (Label, Key)):
        label = selector.label if isinstance(selector, Label) else selector.key
        if not LABEL.fullmatch(label):
            return False
        return None if names is None or label.partition(":")[0].rpartition("_")[0] == type_ else False
    return None
