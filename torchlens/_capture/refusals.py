"""What cannot be captured, found in what a model consists of before anything of it runs.

Classes of packages that are optional or slow to load are known by the names in their ancestry: an object of
them exists only where they are loaded, and nothing is imported to find that none does.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from types import CellType, FunctionType, MethodType
from typing import Any, Final, cast

import torch
from torch import Tensor, nn

from torchlens.errors import NestedCaptureError, TorchLensError, UnsupportedModelError


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why something cannot be captured."""

    kind: str
    found: str
    """The object and where it is."""
    reason: str
    instead: str
    """What to type or do instead."""
    error: type[TorchLensError] = UnsupportedModelError

    def __str__(self) -> str:
        return f"{self.found} {self.reason}; {self.instead}"


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of object that is refused."""

    name: str
    reason: str
    instead: str


SCRIPT: Final = _Kind(
    "TorchScript",
    "runs in TorchScript's interpreter, not as Python, so its ops cannot be seen",
    "trace the eager nn.Module it was made from",
)
EXPORTED: Final = _Kind(
    "torch.export",
    "comes from torch.export and does not run as the Python it was written in",
    "trace the eager nn.Module before exporting it",
)
SHARDED: Final = _Kind(
    "FSDP",
    "is sharded by FSDP: this process holds a part of each parameter and gathers the rest while it runs",
    "trace a copy that is not sharded, built before FSDP wraps it and loaded with the full state dict",
)
TENSOR_PARALLEL: Final = _Kind(
    "tensor parallel",
    "is split over a device mesh, so this process would see a part of each value only",
    "trace a copy to which neither parallelize_module nor distribute_module was applied, loaded with each "
    "parameter's full_tensor()",
)
PIPELINE: Final = _Kind(
    "pipeline parallel",
    "belongs to a pipeline, which runs its stages in several processes on parts of the batch",
    "trace one stage's own module (stage.submod), or the model before it is split",
)
REPLICATED: Final = _Kind(
    "DataParallel inside a model",
    "runs copies of its module on threads, one for each device, which a capture does not see",
    "put its .module in its place for the capture",
)

UNINITIALIZED: Final = _Kind(
    "not initialised",
    "has an __init__ that does not call super().__init__(), so torch cannot call it",
    "call super().__init__() first in it",
)
REFUSED: Final = (SCRIPT, EXPORTED, SHARDED, TENSOR_PARALLEL, PIPELINE, REPLICATED, UNINITIALIZED)


def refuse_unsupported(model: object, name: str = "") -> None:
    """Raise the typed error for a model, or a place to run it, that a capture cannot see into."""
    for refusal in refusals(model, name):
        raise refusal.error(str(refusal))


def refusals(model: object = None, name: str = "") -> Iterator[Refusal]:
    """All that keeps `model` from being captured here, the outermost objects only; runs nothing of it.

    `name` is what the model goes by among several.
    """
    if torch.utils.data.get_worker_info() is not None:
        yield Refusal(
            "DataLoader worker",
            "this is a DataLoader worker process,",
            "whose results the main process would not see",
            "trace the model in the main process",
            NestedCaptureError,
        )
    called = _called_by(model)
    kind = SCRIPT if issubclass(type(called), _SCRIPT) else _object_kind(called)
    if kind is not None:
        yield _refusal(kind, name, type(called).__name__)
        return
    seen: set[int] = set()
    for where, value in (("", called), *_reached(model)):
        where, part = ", ".join(filter(None, (name, where))), _called_by(value)
        kind = _object_kind(part)
        if kind is not None:
            yield _refusal(kind, where, type(part).__name__)
        elif issubclass(type(part), nn.Module) and _needs_a_closer_look(cast("nn.Module", part)):
            yield from _refused_modules(cast("nn.Module", part), where, "", seen)


def _needs_a_closer_look(module: nn.Module) -> bool:
    """Whether anything in a model may be refused; false at a microsecond a module for nearly all models."""
    waiting: list[nn.Module | None] = [module]
    seen: set[int] = set()
    kinds: set[type[object]] = set()
    tensors: set[type[object]] = set()
    while waiting:
        part = waiting.pop()
        if part is None or id(part) in seen:
            continue
        kind = type(part)
        if kind not in kinds and issubclass(kind, torch.jit.ScriptModule):
            continue
        seen.add(id(part))
        kinds.add(kind)
        held = part.__dict__
        if "_modules" not in held or held["_forward_pre_hooks"] or held["_forward_hooks"]:
            return True
        if held["_parameters"]:
            tensors.update(map(type, held["_parameters"].values()))
        if held["_buffers"]:
            tensors.update(map(type, held["_buffers"].values()))
        if held["_modules"]:
            waiting.extend(held["_modules"].values())
    if not tensors <= _USUAL:
        return True
    return any(issubclass(kind, nn.DataParallel) or _object_kind_of(kind) for kind in kinds)


def _refused_modules(module: nn.Module, where: str, address: str, seen: set[int]) -> Iterator[Refusal]:
    if id(module) in seen:
        return
    seen.add(id(module))
    if isinstance(module, torch.jit.ScriptModule):
        return  # inside a model it is one op
    name = type(module).__name__
    kind = _object_kind(module) or _state_kind(module) or (_replicated(module) if address else None)
    if kind is not None:
        yield _refusal(kind, where, f"{name} at {address!r}" if address else name)
        return
    for child_name, child in module._modules.items():
        if child is not None:
            inner = f"{address}.{child_name}" if address else child_name
            yield from _refused_modules(child, where, inner, seen)


def _refusal(kind: _Kind, where: str, what: str) -> Refusal:
    return Refusal(kind.name, f"{where}: {what}" if where else what, kind.reason, kind.instead)


# ---- kinds of objects ----------------------------------------------------------------------------

_SCRIPT: Final = (torch.jit.ScriptModule, torch.jit.ScriptFunction, torch._C.ScriptMethod)
_INTERPRETED: Final = frozenset(("InterpreterModule", "InterpreterModuleDispatcher", "_SubmoduleBase"))
"""Parts of an unflattened program that run op by op as Python, as in the stages of a traced pipeline."""


def _object_kind(value: object) -> _Kind | None:
    """What the class of a model, a submodule or a schedule says."""
    return _object_kind_of(type(value))


def _object_kind_of(cls: type[object]) -> _Kind | None:
    for kind in cls.__mro__:
        home, name = kind.__module__, kind.__name__
        if home.startswith("torch.export") and name not in _INTERPRETED:
            return EXPORTED
        if home.startswith("torch._inductor") and name == "AOTICompiledModel":
            return EXPORTED
        if name == "FullyShardedDataParallel":
            return SHARDED  # fairscale's too
        if home.startswith("torch.distributed"):
            if name == "FSDPModule":
                return SHARDED
            if home.startswith("torch.distributed.pipelin"):
                return PIPELINE
    return None


def _state_kind(module: nn.Module) -> _Kind | None:
    """What a module's parameters, buffers and hooks say."""
    if "_modules" not in vars(module):
        return UNINITIALIZED
    for table in (module._parameters, module._buffers):
        for tensor in table.values():
            if type(tensor) not in _USUAL and _is_distributed(tensor):
                return TENSOR_PARALLEL
    tables = cast("list[dict[int, object]]", [module._forward_pre_hooks, module._forward_hooks])
    for hook in chain.from_iterable(table.values() for table in tables):
        if isinstance(hook, FunctionType) and str(hook.__globals__.get("__name__")).startswith(_TENSOR_HOMES):
            return TENSOR_PARALLEL
    return None


_TENSOR_HOMES: Final = ("torch.distributed.tensor", "torch.distributed._tensor")
_USUAL: Final = frozenset((nn.Parameter, Tensor, type(None)))


def _is_distributed(tensor: object) -> bool:
    names = ((kind.__module__, kind.__name__) for kind in type(tensor).__mro__)
    return any(
        home.startswith("torch.distributed") and name in ("DTensor", "ShardedTensor") for home, name in names
    )


def _replicated(module: nn.Module) -> _Kind | None:
    if isinstance(module, nn.DataParallel) and len(module.device_ids) > 1:
        return REPLICATED
    return None


# ---- what a callable reaches ---------------------------------------------------------------------


def _called_by(model: object) -> object:
    """What a callable calls in the end: a partial's function, a bound method's object."""
    while issubclass(type(model), (partial, MethodType)):
        bound = type(model) is MethodType
        model = cast(MethodType, model).__self__ if bound else cast("partial[Any]", model).func
    return model


def _reached(model: object) -> Iterator[tuple[str, object]]:
    """The objects that what is called may use, by name, without running anything: one step, no search."""
    while isinstance(model, (partial, MethodType)):
        if isinstance(model, MethodType):
            model = model.__self__
            continue
        bound = cast("partial[Any]", model)
        for name, value in (*enumerate(bound.args), *bound.keywords.items()):
            yield f"the partial's argument {name!r}", value
        model = bound.func
    if isinstance(model, FunctionType):
        yield from ((f"{model.__name__} uses {name}", value) for name, value in _names_used(model))
    elif not isinstance(model, nn.Module) and hasattr(model, "__dict__"):
        yield from ((f"its attribute {name}", value) for name, value in vars(model).items())


def _names_used(function: FunctionType) -> Iterator[tuple[str, object]]:
    """The variables of a function's surroundings that its code reads."""
    cells: tuple[CellType, ...] = function.__closure__ or ()
    for name, cell in zip(function.__code__.co_freevars, cells):
        with suppress(ValueError):  # a variable that is not assigned yet
            yield name, cell.cell_contents
    for argument in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        yield "a default", argument
    names = [name for name in function.__code__.co_names if _may_hold(function.__globals__.get(name))]
    if names:  # which may be names of attributes too
        read = {i.argval for i in dis.get_instructions(function) if i.opname == "LOAD_GLOBAL"}
        yield from ((name, function.__globals__[name]) for name in names if name in read)


def _may_hold(value: object) -> bool:
    # `isinstance` would run a user object's `__class__`
    return issubclass(type(value), nn.Module) or _object_kind(value) is not None
