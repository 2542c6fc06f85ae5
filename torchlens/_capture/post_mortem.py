"""What is known of a run that an exception ended, read from the exception's traceback when the run is over.

While the model runs, nothing is written down for this: the frames that the exception passed through still
have the function that was called and its arguments. What is kept of them is text and numbers.
"""

from __future__ import annotations

import reprlib
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import CodeType, TracebackType
from typing import Any, Final, cast

import torch
from torch import Tensor

from torchlens._capture.modules import forward_offset
from torchlens._capture.user_lines import places_of, user_lines
from torchlens._keys.lookups import variables
from torchlens._keys.names import torch_name
from torchlens._records import FailedArgument, FailedCall, Failure, ModuleCallEntry, Opaque
from torchlens._values.geometry import dtype_name, shape_of
from torchlens._values.plain import SCALARS, opaque, plain

_MOST_LINES: Final = 8
_MOST_ARGUMENTS: Final = 64

Identify = Callable[[Tensor], tuple[tuple[int, int] | None, str | None]]
"""Tells the row and output slot that gave a tensor last, and the address of the parameter that it is."""


class PostMortem:
    """Reads what a capture wants to know from the exception that ended it.

    `handler` is the code of the mode's handler and `mode` whose handler it must be; `module_code` is the code
    of the frames that run modules; `identify` tells what a tensor is.
    """

    def __init__(self, handler: CodeType, mode: object, module_code: CodeType, identify: Identify) -> None:
        self._handler = handler
        self._mode = mode
        self._module_code = module_code
        self._identify = identify

    def failure(
        self, error: BaseException, calls: Sequence[ModuleCallEntry], index_of: Mapping[int, int]
    ) -> Failure:
        """The failure of a run with these module calls; `index_of` has modules by the id of their object.

        It raises nothing for what it cannot find out: the model's exception is on its way.
        """
        with torch._C.DisableTorchFunction():
            places = list(places_of(error.__traceback__))
            module_call, in_hook = _or_none(lambda: self._module_call(places, calls, index_of)) or (0, False)
            return Failure(
                type(error).__name__,
                _message(error),
                _or_none(lambda: "".join(traceback.format_exception(error))) or "",
                _or_none(lambda: tuple(user_lines(places, _MOST_LINES))) or (),
                module_call,
                in_hook,
                _or_none(lambda: self._failed_call(error)),
            )

    def _module_call(
        self, places: list[TracebackType], calls: Sequence[ModuleCallEntry], index_of: Mapping[int, int]
    ) -> tuple[int, bool]:
        """The innermost module call on the way, and whether it was in a hook."""
        for place in reversed(places):
            frame = place.tb_frame
            if frame.f_code is not self._module_code:
                continue
            module = index_of.get(id(variables(frame).get("self")))
            begun = [at for at, call in enumerate(calls) if at and call.module == module]
            if begun:
                in_hook = place.tb_lasti != forward_offset(self._module_code)
                # what a hook is given was returned already; otherwise later calls of the module may have been
                running = [at for at in begun if calls[at].end is None]
                return (running or begun)[-1], in_hook
        return 0, False

    def _failed_call(self, error: BaseException) -> FailedCall | None:
        """The innermost torch call that the exception, or the one that led to it, came out of."""
        for found in _chain(error):
            running = [
                names
                for place in places_of(found.__traceback__)
                if place.tb_frame.f_code is self._handler
                and (names := variables(place.tb_frame))["self"] is self._mode
            ]
            if running:
                *around, names = running
                arguments = list(self._arguments(names))
                return FailedCall(
                    torch_name(names["func"]),
                    tuple(torch_name(outer["func"]) for outer in around),
                    tuple(arguments[:_MOST_ARGUMENTS]),
                    max(0, len(arguments) - _MOST_ARGUMENTS),
                    None if found is error else f"{type(found).__name__}: {_message(found)}",
                )
        return None

    def _arguments(self, names: Mapping[str, Any]) -> Iterator[FailedArgument]:
        positional = cast("tuple[Any, ...]", names["args"])
        keywords = cast("dict[str, Any]", names["kwargs"] or {})
        for position, value in (*enumerate(positional), *keywords.items()):
            # as plain data, so that no code of the user's runs
            yield from _leaves(str(position), plain(value, self._tensor))

    def _tensor(self, tensor: Tensor) -> FailedArgument:
        made, param = _or_none(lambda: self._identify(tensor)) or (None, None)
        return FailedArgument(
            "",
            type(tensor).__name__,
            dtype_name(tensor.dtype),
            _or_none(lambda: shape_of(tensor)),
            str(tensor.device),
            made,
            param,
        )


def _leaves(position: str, value: Any) -> Iterator[FailedArgument]:
    """The tensors in plain data, and whatever lies beside them, each at its own position."""
    if type(value) is FailedArgument:
        yield replace(value, position=position)
    elif not _holds_tensors(value):
        yield FailedArgument(position, _short.repr(value))
    else:
        for name, item in _items(value):
            yield from _leaves(f"{position}.{name}", item)


def _holds_tensors(value: Any) -> bool:
    return type(value) is FailedArgument or any(_holds_tensors(item) for _, item in _items(value))


_tuple_items = cast("Callable[[Any], Iterable[Any]]", tuple.__iter__)
_dict_items = cast("Callable[[Any], Iterable[tuple[object, Any]]]", dict.items)


def _items(value: Any) -> list[tuple[object, Any]]:
    """What a container of plain data holds, by name or number."""
    kind = cast("type[object]", type(value))
    found: object = ()
    if issubclass(kind, tuple):
        found = enumerate(_tuple_items(value))
    elif kind is list:
        found = enumerate(cast("list[Any]", value))
    elif kind is slice:
        found = [("start", value.start), ("stop", value.stop), ("step", value.step)]
    elif issubclass(kind, dict):
        found = _dict_items(value)
    elif "__dataclass_fields__" in dir(kind):
        found = _dict_items(cast("object", value.__dict__))
    return list(cast("Iterable[tuple[object, Any]]", found))


def _or_none(ask: Callable[[], Any]) -> Any:
    """An answer about a tensor; None where its class, or the transform it belongs to, has none."""
    try:
        return ask()
    except Exception:  # noqa: BLE001 - whatever it says, the model's own exception is what matters
        return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception and those that led to it, newest first."""
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        hidden = found.__cause__ is None and found.__suppress_context__
        found = found.__context__ if found.__cause__ is None and not hidden else found.__cause__


def _message(error: BaseException) -> str:
    """What an exception says, also where its own `__str__` raises."""
    return str(traceback.TracebackException(type(error), error, None))


class _Short(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxother, self.maxstring, self.maxlong = 4, 120, 120, 40
        self.maxlist = self.maxtuple = self.maxdict = 8

    def repr_instance(self, x: Any, level: int) -> str:
        """The text of what is neither a number, a string nor a container."""
        own = type(x) in SCALARS or type(x) in (Opaque, slice, FailedArgument)
        return super().repr_instance(x, level) if own else opaque(x).text  # which runs no code of its class


_short: Final = _Short()
