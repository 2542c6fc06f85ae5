"""Which ops are meant: `tl.func("relu") & tl.in_module("encoder")`. `&`, `|` and `~` combine selectors."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, cast

from torchlens._terms import (
    LABEL,
    AnyOf,
    Func,
    InFunc,
    InModule,
    Key,
    Label,
    Line,
    ModuleOutput,
    Output,
    Selector,
    Where,
)
from torchlens.errors import InputError

_LINE: Final = re.compile(r"(.+):(\d+)")

Sites: TypeAlias = "str | Selector | Sequence[str | Selector]"
"""What `save=` takes: labels, module addresses and selectors, one or several."""


def func(name: str) -> Selector:
    """The calls of a torch function, by the name the code wrote, its type, or torch's own name for it.

    >>> func("relu") | func("gelu")
    (func('relu') | func('gelu'))
    """
    return Func(_text(name, "func", "a function's name, such as 'relu'"))


def in_func(name: str) -> Selector:
    """What ran inside a torch function that torch wrote in Python: `in_func("normalize")`."""
    return InFunc(_text(name, "in_func", "a function's name, such as 'normalize'"))


def output() -> Selector:
    """What the model returned."""
    return Output()


def module(address: str) -> Selector:
    """What a module (`"encoder.0"`) or one of its calls (`"encoder.0:2"`) gave to its caller."""
    return ModuleOutput(_text(address, "module", "an address, such as 'encoder.0'"))


def in_module(address: str) -> Selector:
    """What ran in a module's calls and in the calls within them; of a `ModuleList`, in those of its items."""
    return InModule(_text(address, "in_module", "an address, such as 'encoder.0'"))


def label(name: str) -> Selector:
    """A layer (`"relu_1"`), all its passes, or one of them (`"relu_1:2"`)."""
    name = _text(name, "label", "a label, such as 'relu_1' or 'relu_1:2'")
    if not LABEL.fullmatch(name):
        raise InputError(
            f"label({name!r}) is no label, which is a type and a number; give one such as 'relu_1' or "
            f"'relu_1:2', or module({name!r}) if it is an address"
        )
    return Label(name)


def line(place: str) -> Selector:
    """What was called from a line of the code, at any depth: `line("model.py:88")`.

    The file may be given by the end of its path. A call that spans several lines is on each of them.
    """
    found = _LINE.fullmatch(_text(place, "line", "a file and a line, such as 'model.py:88'"))
    if found is None:
        raise InputError(f"line({place!r}) names no line; give the file and the line, such as 'model.py:88'")
    return Line(found[1], int(found[2]))


def where(predicate: Callable[[Any], object]) -> Selector:
    """The ops for which `predicate(op)` is true.

    While the model runs it is asked once for each op, right after it, about what is known by then: the
    names, `kind`, `shape`, `dtype`, `device`, `nbytes`, `requires_grad`, `module`, `call_site`, `scopes`,
    `label`, and the value itself, `op.out`.
    """
    if not callable(predicate):
        raise InputError(
            f"where({predicate!r}) was given a {type(predicate).__name__}; give a function of an op, such as "
            "lambda op: op.shape[-1] == 10"
        )
    return Where(predicate)


def selector_of(sites: object, argument: str) -> Selector:
    """The selector that labels, addresses and selectors, one or several, stand for."""
    if isinstance(sites, Selector):
        return sites
    if isinstance(sites, str):
        return Key(sites)
    if isinstance(sites, (list, tuple, set, frozenset)):
        return AnyOf(tuple(selector_of(site, argument) for site in cast("Sequence[object]", sites)))
    raise InputError(
        f"{argument}={sites!r} is a {type(sites).__name__}; give a label ('relu_1'), a module's address "
        "('encoder.0'), a selector (tl.func('relu')), or a list of these"
    )


def _text(value: object, name: str, wanted: str) -> str:
    if isinstance(value, str):
        return value
    raise InputError(f"{name}({value!r}) was given a {type(value).__name__}; give {wanted}")
