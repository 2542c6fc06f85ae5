"""What the inputs of root calls go by: the parameter that a tensor came through, and the path from there."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MethodType
from typing import Any, Final, NamedTuple, cast

from torch import Tensor, nn

from torchlens._capture.unwrapping import unwrapped
from torchlens._unseen import unseen
from torchlens._values.paths import paths_in


class _Positional(NamedTuple):
    """The parameters that positional arguments come through."""

    names: Sequence[str] = ()
    rest: str | None = None
    """The one that takes all further ones, `args` of `*args`."""


_UNKNOWN: Final = _Positional(rest="args")


def entry_of(model: Callable[..., Any]) -> Callable[..., Any]:
    """What takes a model's arguments: itself, or the `__call__` that a class of modules has of its own."""
    return (
        model.__call__
        if isinstance(model, nn.Module) and type(model).__call__ is not nn.Module.__call__
        else model
    )


class InputNames:
    """Names the inputs of one capture."""

    def __init__(self) -> None:
        self.of_row: dict[int, str] = {}
        self._known: dict[int, tuple[object, _Positional]] = {}
        """By id of what was called, which is held so that the id stays its own."""

    def add(
        self,
        called: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        inputs: Iterable[tuple[int, Tensor]],
    ) -> None:
        """Name the inputs that a call brought in, each by the first place that holds it."""
        known = self._known.get(id(called))
        if known is None:
            known = self._known[id(called)] = called, _positional(called)
        found: dict[int, str] = {}
        for name, value in _named(known[1], args, kwargs):
            for path, tensor in paths_in(value):
                found.setdefault(id(tensor), name + path)
        for row, tensor in inputs:
            if id(tensor) in found:
                self.of_row[row] = found[id(tensor)]


def _named(
    parameters: _Positional, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    names, rest = parameters
    if rest is None and len(args) > len(names):  # what it says of itself is not so
        names, rest = _UNKNOWN
    yield from zip(names, args)
    for at, value in enumerate(args[len(names) :]):
        yield f"{rest}[{at}]", value
    yield from kwargs.items()


def _positional(called: Callable[..., Any]) -> _Positional:
    try:
        with unseen():  # it may be a user's code that answers
            parameters = inspect.signature(_written(called)).parameters.values()
    except Exception:  # noqa: BLE001 - torch's own functions have no signature, and a user's may raise anything
        return _UNKNOWN
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    rest = [each.name for each in parameters if each.kind is inspect.Parameter.VAR_POSITIONAL]
    names = [each.name for each in parameters if each.kind in by_position]
    return _Positional(names, rest[0] if rest else None)


def _written(called: Callable[..., Any]) -> Callable[..., Any]:
    """What the user wrote the parameters of: of a module its forward, for `__call__` takes anything."""
    if type(called) is partial:
        bound = cast("partial[Any]", called)
        return partial(_written(entry_of(bound.func)), *bound.args, **bound.keywords)
    if isinstance(called, MethodType) and called.__func__ is nn.Module.__call__:
        return _written(cast("nn.Module", called.__self__))
    if isinstance(called, nn.Module):
        return cast("nn.Module", unwrapped(called)).forward
    return called
