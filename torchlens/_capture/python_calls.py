"""Entering the torch functions that torch writes in Python, so that the ops inside them are seen.

Such a function hands itself to the mode because its first lines ask `has_torch_function*`, which any mode
makes true; calling it again under the mode would ask again, without end. What is called instead is a
*clone*: a function over the same code whose globals are a copy in which those questions answer no. Torch's
own functions and modules are only read.
"""

from __future__ import annotations

import gc
import opcode
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import CellType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any, TypeAlias

import torch
from torch import overrides
from torch.utils import _device

Entry: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...], Mapping[str, Any] | None]
"""An entered function with the arguments it was entered with."""

_LEAVES: Mapping[str, frozenset[str]] = {
    "operators": frozenset(
        "__rsub__ __rdiv__ __rtruediv__ __floordiv__ __rfloordiv__ __rmod__ __rpow__ __pow__ __ipow__ "
        "pow pow_ __rlshift__ __rrshift__ __rmatmul__".split()
    ),
    "printing": frozenset("__repr__ __str__ __format__ __dir__".split()),
    "copying and pickling": frozenset(
        "__deepcopy__ __reduce_ex__ __setstate__ _clear_non_serializable_cached_data".split()
    ),
    "gradients": frozenset("backward register_hook register_post_accumulate_grad_hook".split()),
    "other libraries": frozenset("__array__ __array_wrap__ __dlpack__ __dlpack_device__".split()),
    "storage": frozenset(
        "storage storage_type _typed_storage untyped_storage is_shared share_memory_".split()
    ),
    "metadata": frozenset("__len__ dim_order".split()),
    "first-class dimensions": frozenset(["index"]),
}
"""Methods of `torch.Tensor`, written in Python, that are one op or no op at all."""

_LEAF_METHODS = frozenset(
    f"{owner}.{name}" for names in _LEAVES.values() for name in names for owner in ("Tensor", "TensorBase")
)
_LEAF_FUNCTIONS = frozenset([("torch.autograd", "backward"), ("torch.autograd", "grad")])
_LEAF_PACKAGES = ("torch.distributed.",)


def _no(*_: object) -> bool:
    return False


_ANSWERS = {f"has_torch_function{kind}": _no for kind in ("", "_unary", "_variadic")}
_QUESTIONS = frozenset(_ANSWERS)
_STORE_GLOBAL, _DELETE_GLOBAL = opcode.opmap["STORE_GLOBAL"], opcode.opmap["DELETE_GLOBAL"]
_num_modes = torch._C._len_torch_function_stack
_PLAIN = (torch.Tensor,)  # Python-written functions count `Tensor` itself among the overriding types
_HANDLER_FRAMES = 4
"""How many frames a mode may have between an entered function and `handle_torch_function`."""


def _only_default_device(func: Callable[..., Any]) -> bool:
    """Whether the one mode below is that of `torch.set_default_device`, which passes `func` on as it is."""
    if _num_modes() != 1 or not isinstance(torch._C._get_function_stack_at(0), _device.DeviceContext):
        return False
    return func not in _device._device_constructors()


def is_leaf(func: Callable[..., Any]) -> bool:
    """Whether a call of `func` is never entered, whatever its arguments."""
    if type(func) is not FunctionType or not torch_wrote(func):
        return True
    module, name = func.__module__, func.__qualname__
    if module == "torch._tensor":
        return name in _LEAF_METHODS
    return (module, name) in _LEAF_FUNCTIONS or module.startswith(_LEAF_PACKAGES)


def torch_wrote(func: FunctionType) -> bool:
    """Whether `func` is of torch's own modules.

    Only these are safe to run on copied globals: other libraries may rebind theirs meanwhile.
    """
    return _is_torchs(func.__globals__)


class ReadThrough:
    """A module with some names replaced; every other name is read from the module each time."""

    def __init__(self, module: ModuleType, replaced: Mapping[str, object]) -> None:
        self.__dict__.update(replaced)
        self._read_module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._read_module, name)


class PythonCalls:
    """The clones of one capture, built as they are needed."""

    def __init__(self) -> None:
        self.kept_whole: set[str] = set()
        """Functions that could have been entered, but for another mode or a tensor subclass."""
        self._handle_code = overrides.handle_torch_function.__code__
        self._clones: dict[Callable[..., Any], FunctionType | None] = {}
        self._copies: dict[int, _GlobalsCopy] = {}  # by the id of the copied globals
        self._copy_ids: set[int] = set()
        self._originals: dict[int, Callable[..., Any]] = {}  # by the id of their code
        warn = _Warn(self._copy_ids, self._handle_code)
        self._replaced: dict[int, object] = {
            **{id(getattr(overrides, question)): answer for question, answer in _ANSWERS.items()},
            id(warnings): ReadThrough(warnings, {"warn": warn}),
            id(warnings.warn): warn,
        }
        overrides_view = ReadThrough(overrides, _ANSWERS)
        self._asked_modules: dict[int, object] = {
            id(overrides): overrides_view,
            id(torch): ReadThrough(torch, {"overrides": overrides_view}),
        }

    def find(
        self,
        func: Callable[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any] | None,
        caller: FrameType,
        innermost: Entry | None,
    ) -> FunctionType | None:
        """The clone to call in place of `func` with the mode pushed again; None: call `func` as one op.

        `func`, `types`, `args`, `kwargs` are what `__torch_function__` was given and `caller` is the frame
        that called it; `innermost` is the entry that is running, if any.
        """
        if caller.f_code is not self._handle_code:
            return None  # C called a Python override of itself (`Tensor.unflatten`): it would come back here
        guard = caller.f_back
        if guard is None or id(guard.f_globals) in self._copy_ids:
            return None  # a clone asked in a way that could not be answered for it
        try:
            clone = self._clones[func]
        except KeyError:
            clone = self._clones[func] = self._build(func, guard)
        if clone is None:
            return None
        if (types and types != _PLAIN) or (_num_modes() and not _only_default_device(func)):
            self.kept_whole.add(func.__name__)
            return None  # subclasses and other modes are shown the whole function, as torch would
        if innermost is not None and innermost[0] is func and _identical(innermost, args, kwargs):
            return None
        return clone

    def unpatched(self, func: Callable[..., Any], caller: FrameType) -> Callable[..., Any]:
        """Torch's own function, where `func` is what somebody put in its place (`F.relu = logged(F.relu)`).

        Torch looks up by name what it tells the mode it is in. A wrapper is then already running, around
        the function that asks, and must not be called again.
        """
        if type(func) is not FunctionType or torch_wrote(func):
            return func
        if caller.f_code is not self._handle_code:  # a method that is written in C
            names = [name for name, method in vars(torch.Tensor).items() if method is func]
            return getattr(torch._C.TensorBase, names[0], func) if len(names) == 1 else func
        guard = caller.f_back
        if guard is None or guard.f_code is func.__code__ or not _is_torchs(guard.f_globals):
            return func
        original = self._originals.get(id(guard.f_code))
        if original is None:
            original = self._originals[id(guard.f_code)] = _function_of(guard) or func
        return original

    def close(self) -> None:
        """Undo the copies' replacements: a closure that outlives the capture then runs as torch wrote it."""
        for copy in self._copies.values():
            copy.undo()
        for kept in (self._copies, self._clones, self._copy_ids, self._originals):
            kept.clear()

    def _build(self, func: Callable[..., Any], guard: FrameType) -> FunctionType | None:
        if type(func) is not FunctionType or is_leaf(func):
            return None
        if _asks(func, set()):
            return self._clone(func, set())
        # The function asks through another one of its module (`torch.meshgrid`).
        asker = guard.f_globals.get(guard.f_code.co_name)
        if type(asker) is FunctionType and asker.__code__ is guard.f_code and torch_wrote(asker):
            return self._clone(asker, set())
        return None

    def _clone(self, func: FunctionType, open_functions: set[FunctionType]) -> FunctionType | None:
        if _writes_globals(func.__code__):
            return None  # it would write to the copy
        open_functions.add(func)
        copy = self._copy_of(func.__globals__)
        self._answer(func.__code__, copy)
        cells = func.__closure__ and tuple(self._cell(cell, open_functions) for cell in func.__closure__)
        clone = FunctionType(func.__code__, copy.globals, func.__name__, func.__defaults__, cells)
        clone.__kwdefaults__ = func.__kwdefaults__ and dict(func.__kwdefaults__)
        clone.__qualname__ = func.__qualname__
        return clone

    def _copy_of(self, module_globals: dict[str, Any]) -> _GlobalsCopy:
        copy = self._copies.get(id(module_globals))
        if copy is None:
            copy = self._copies[id(module_globals)] = _GlobalsCopy(module_globals)
            self._copy_ids.add(id(copy.globals))
        return copy

    def _answer(self, code: CodeType, copy: _GlobalsCopy) -> None:
        """Replace, in the copied globals, what `code` uses to ask and to warn."""
        original, known = copy.original, copy.known
        names = _names(code)
        if _asks_by_attribute(names, original):
            for name in names:
                view = self._asked_modules.get(id(original.get(name)))
                if view is not None:
                    copy.replace(name, view)
        for name in names:
            if name in known or name not in original:
                continue
            known.add(name)
            value = original[name]
            replacement = self._replaced.get(id(value))
            if replacement is not None:
                copy.replace(name, replacement)
            elif type(value) is FunctionType and _warns_for_callers(value, original):
                copy.replace(name, self._clone(value, set()) or value)

    def _cell(self, cell: CellType, open_functions: set[FunctionType]) -> CellType:
        try:
            held = cell.cell_contents
        except ValueError:
            return cell
        if type(held) is not FunctionType or held in open_functions:
            return cell
        if not (torch_wrote(held) and _asks(held, set())):
            return cell
        clone = self._clone(held, open_functions)
        return cell if clone is None else CellType(clone)


class _GlobalsCopy:
    """A copy of a module's globals, and which of its names are not the module's."""

    def __init__(self, original: dict[str, Any]) -> None:
        self.original = original
        self.globals = original.copy()
        self.known: set[str] = set()  # names looked at already
        self.replaced: set[str] = set()

    def replace(self, name: str, value: object) -> None:
        self.globals[name] = value
        self.replaced.add(name)

    def undo(self) -> None:
        for name in self.replaced:
            if name in self.original:
                self.globals[name] = self.original[name]
        # Python notes there which warnings it has shown already: keep the note, as without a capture.
        shown = self.globals.get("__warningregistry__")
        if shown is not None:
            self.original.setdefault("__warningregistry__", shown)


class _Warn:
    """`warnings.warn` for entered functions: a stack level does not count the mode's frames."""

    def __init__(self, copy_ids: set[int], handle_code: CodeType) -> None:
        self._copy_ids = copy_ids
        self._handle_code = handle_code

    def __call__(
        self,
        message: str | Warning,
        category: type[Warning] | None = None,
        stacklevel: int = 1,
        source: Any = None,
        **more: Any,
    ) -> None:
        added = self._count_added(sys._getframe(1), stacklevel)
        warnings.warn(message, category, stacklevel + added + 1, source, **more)

    def _count_added(self, frame: FrameType | None, stacklevel: int) -> int:
        added = 0
        for _ in range(stacklevel - 1):
            if frame is None:
                break
            outer = frame.f_back
            if outer is not None and id(frame.f_globals) in self._copy_ids:
                beyond = self._count_mode(outer, frame.f_code)
                added += beyond
                for _ in range(beyond):
                    outer = outer and outer.f_back
            frame = outer
        return added

    def _count_mode(self, frame: FrameType, code: CodeType) -> int:
        """How many frames from `frame` outwards are the mode's and the guard's; 0 if it is none of these."""
        count = 0
        walker: FrameType | None = frame
        while walker is not None and walker.f_code is not self._handle_code:
            count += 1
            if count > _HANDLER_FRAMES or id(walker.f_globals) in self._copy_ids:
                return 0
            walker = walker.f_back
        guard = walker and walker.f_back
        beyond = count + 2
        for extra in range(_HANDLER_FRAMES):  # a guard may lie inside the function that was entered
            if guard is None:
                break
            if guard.f_code is code:
                return beyond + extra
            guard = guard.f_back
        return beyond


def _identical(entry: Entry, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> bool:
    entry_args, entry_kwargs, kwargs = entry[1], entry[2] or {}, kwargs or {}
    return (
        len(entry_args) == len(args)
        and entry_kwargs.keys() == kwargs.keys()
        and all(entered is given for entered, given in zip(entry_args, args, strict=True))
        and all(entry_kwargs[name] is kwargs[name] for name in kwargs)
    )


def _is_torchs(module_globals: dict[str, Any]) -> bool:
    module = module_globals.get("__name__")
    return isinstance(module, str) and (module == "torch" or module.startswith("torch."))


def _function_of(frame: FrameType) -> FunctionType | None:
    """The function that runs in `frame`, whose module may hold another by its name."""
    named = frame.f_globals.get(frame.f_code.co_name)
    for function in (named, *gc.get_referrers(frame.f_code)):
        if type(function) is not FunctionType or function.__globals__ is not frame.f_globals:
            continue
        if function.__code__ is frame.f_code:
            return function
    return None


def _inner_codes(code: CodeType) -> list[CodeType]:
    return [constant for constant in code.co_consts if type(constant) is CodeType]


def _names(code: CodeType) -> Sequence[str]:
    names = code.co_names
    for inner in _inner_codes(code):
        names = (*names, *_names(inner))
    return names


def _writes_globals(code: CodeType) -> bool:
    operations = code.co_code[::2]
    if _STORE_GLOBAL in operations or _DELETE_GLOBAL in operations:
        return True
    return any(_writes_globals(inner) for inner in _inner_codes(code))


def _asks(func: FunctionType, seen: set[FunctionType]) -> bool:
    """Whether `func` itself, or a torch function in its closure, asks for overrides."""
    if not _QUESTIONS.isdisjoint(_names(func.__code__)):
        return True
    seen.add(func)
    for cell in func.__closure__ or ():
        try:
            held = cell.cell_contents
        except ValueError:
            continue
        if type(held) is FunctionType and held not in seen and torch_wrote(held) and _asks(held, seen):
            return True
    return False


def _asks_by_attribute(names: Sequence[str], module_globals: dict[str, Any]) -> bool:
    return "overrides" in names or any(name in names and name not in module_globals for name in _QUESTIONS)


def _warns_for_callers(func: FunctionType, module_globals: dict[str, Any]) -> bool:
    """Whether `func` is part of its module's own code that warns on behalf of whoever called it."""
    names = func.__code__.co_names
    return func.__globals__ is module_globals and "warnings" in names and _QUESTIONS.isdisjoint(names)
