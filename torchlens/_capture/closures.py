"""What functions use besides their arguments: the tensors that their code names.

A function handed to a transform or to a control-flow operator runs where its calls are not seen one by one;
its closures still feed the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any, Final, cast

from torch import Tensor, nn

from torchlens._capture.python_calls import torch_wrote
from torchlens._keys.lookups import variables
from torchlens._values.plain import tensors_in

_DEPTH: Final = 4
_FUNCTIONS: Final = (FunctionType, MethodType, partial)


def closed_over(arguments: object) -> list[tuple[str, Tensor]]:
    """The tensors that functions among nested arguments name: closures, defaults, globals, modules.

    A module counts with all its parameters and buffers where it is called or passed on, and with one tensor
    where the code names that attribute. Tensors that are arguments themselves are left out.
    """
    found: dict[int, tuple[str, Tensor]] = {}
    given = set(map(id, tensors_in(arguments)))
    visited: set[int] = set()
    queue: list[tuple[str, object, int]] = [("", function, 0) for function in _functions_in(arguments)]
    while queue:
        name, value, depth = queue.pop(0)
        if issubclass(type(value), Tensor):
            if id(value) not in given:
                found.setdefault(id(value), (name, cast("Tensor", value)))
        elif depth <= _DEPTH and id(value) not in visited:
            visited.add(id(value))
            queue.extend((inner or name, part, depth + 1) for inner, part in _parts(value))
    return list(found.values())


def roots_of_user_frames(frame: FrameType | None, last: FrameType | None) -> Iterator[tuple[str, object]]:
    """What the code of the frames from `frame` outwards to `last` names but did not make: free variables,
    globals, and the module whose method runs. Frames of torch's own code are passed over.
    """
    while frame is not None:
        code = frame.f_code
        if not _is_torchs(frame):
            held = variables(frame)
            yield from ((name, held[name]) for name in code.co_freevars if name in held)
            own = held.get(code.co_varnames[0]) if code.co_varnames else None
            if issubclass(type(own), nn.Module):
                yield code.co_varnames[0], own
            names = code.co_names
            yield from ((name, frame.f_globals[name]) for name in names if name in frame.f_globals)
        if frame is last:
            return
        frame = frame.f_back


def _is_torchs(frame: FrameType) -> bool:
    """Whether torch wrote the code, or generated it from a graph of its own."""
    generated = frame.f_code.co_filename.startswith("<eval_with_key>")
    return generated or str(frame.f_globals.get("__name__")).startswith("torch.")


def _functions_in(arguments: object) -> Iterator[object]:
    kind = type(arguments)
    held: Any = arguments
    if kind in _FUNCTIONS or issubclass(kind, nn.Module):
        yield arguments
    elif kind in (tuple, list, dict):
        for item in held.values() if kind is dict else held:
            yield from _functions_in(item)


def _parts(value: object) -> Iterator[tuple[str, object]]:
    """What a value holds or names; without a name of its own it goes by that of the value."""
    kind = type(value)
    held: Any = value
    if kind is FunctionType:
        yield from _named_by(held)
    elif kind is MethodType:
        owner = held.__self__
        names = _names(held.__func__.__code__) if type(held.__func__) is FunctionType else frozenset[str]()
        yield "", held.__func__
        yield from _of_module(owner, names) if issubclass(type(owner), nn.Module) else ()
    elif kind is partial:
        yield from (("", part) for part in (held.func, held.args, held.keywords))
    elif issubclass(kind, nn.Module):
        yield from nn.Module.named_parameters(held)
        yield from nn.Module.named_buffers(held)
    elif kind in (dict, list, tuple):
        items = cast("list[object]", list(held.values() if kind is dict else held))
        yield from (("", item) for item in items)


def _named_by(function: FunctionType) -> Iterator[tuple[str, object]]:
    names = _names(function.__code__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            content = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
        if issubclass(type(content), nn.Module):
            yield from _of_module(content, names)
        else:
            yield name, content
    yield from (("", default) for default in function.__defaults__ or ())
    yield from (function.__kwdefaults__ or {}).items()
    for name in sorted(names & function.__globals__.keys()):
        value = function.__globals__[name]
        if issubclass(type(value), nn.Module):
            yield from _of_module(value, names)
        elif issubclass(type(value), Tensor) or (type(value) is FunctionType and not torch_wrote(value)):
            yield name, value


def _of_module(module: Any, names: frozenset[str]) -> Iterator[tuple[str, object]]:
    """The attributes of a module that code names; all of it where it names none, as it is called itself."""
    tables: list[dict[str, object]] = [module._parameters, module._buffers, module._modules, vars(module)]
    named = [(name, table[name]) for table in tables for name in sorted(names) if name in table]
    yield from named or [*module.named_parameters(), *module.named_buffers()]


def _names(code: CodeType) -> frozenset[str]:
    """The global and attribute names that code uses, in functions inside it too."""
    inner = (const for const in code.co_consts if isinstance(const, CodeType))
    return frozenset(code.co_names).union(*map(_names, inner))
