"""On which side of an operator the tensor stood, read from the running frame without running any of its code.

Torch tells `x + 1` and `1 + x` apart by nothing that it passes on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FrameType, GetSetDescriptorType, MemberDescriptorType, ModuleType, SimpleNamespace
from typing import Literal, NamedTuple, TypeAlias, cast

from torchlens._keys.bytecode import ByCode
from torchlens._keys.operands import Literally, Name, Use, use
from torchlens._records import Side

SIDED = frozenset({"add", "mul"})
"""Torch's names of the operators whose reflected form has the same name; others come as `__rsub__`."""

_OPERATOR_FUNCTIONS = frozenset({"add", "mul", "__add__", "__mul__", "iadd", "imul", "__iadd__", "__imul__"})
_OPTIMIZED = 1  # co_flags: the locals of the frame are no dictionary
_UNSHARED = 3  # references to a dictionary that only the frame, a variable here and the question itself hold
_ATTRIBUTE_READERS = tuple(kind.__getattribute__ for kind in (object, ModuleType, SimpleNamespace))
_MODULE_STORES = ("_parameters", "_buffers", "_modules")
_SHOWS_LOCALS = frozenset({"locals", "vars", "dir", "eval", "exec"})


class _Missing:
    """The name cannot be read without running code, or is not bound."""


_MISSING = _Missing()
_Candidate: TypeAlias = tuple[Literal["left", "right"], Name]


class _Plan(NamedTuple):
    """How to decide at one instruction: a fixed answer, or names; the first that can be read tells."""

    answer: Side
    names: tuple[_Candidate, ...] = ()


_plans: ByCode[dict[int, _Plan]] = ByCode(lambda code: {})


def needs_side(name: str) -> bool:
    """Whether a call of this name has a side to ask for when its second argument is no tensor."""
    return name in SIDED


def side_of_tensor(frame: FrameType, is_tensor: Callable[[object], bool]) -> Side:
    """Where the tensor stood in the operator that `frame` is executing; the other operand is none.

    None if the instruction is no binary operator: a call by name tells by itself. `is_tensor` must not run
    code of the object it is given (`issubclass(type(value), Tensor)`).
    """
    plans = _plans(frame.f_code)
    offset = frame.f_lasti
    plan = plans.get(offset)
    if plan is None:
        plan = plans[offset] = _plan(frame.f_code, offset)
    return _ask(frame, plan.names, is_tensor) if plan.names else plan.answer


def _plan(code: CodeType, offset: int) -> _Plan:
    found = use(code, offset)
    if found.kind == "inplace":
        return _Plan("right")  # a tensor on the left would have arrived as its in-place form
    if not _applies_operator(found):
        return _Plan(None)
    left, right = found.operands
    if isinstance(right, Literally):
        return _Plan("left")
    if isinstance(left, Literally):
        return _Plan("right")
    names: list[_Candidate] = []
    if isinstance(left, Name) and _readable(code, left):
        names.append(("left", left))
    if isinstance(right, Name) and _readable(code, right):
        names.append(("right", right))
    names.sort(key=lambda candidate: candidate[1].scope == "local")  # the dear ones last
    return _Plan("unknown", tuple(names))


def _applies_operator(found: Use) -> bool:
    function = found.kind == "call" and found.positional == 2 and not found.keywords
    return found.kind == "binary" or (function and found.callee.name in _OPERATOR_FUNCTIONS)


def _readable(code: CodeType, name: Name) -> bool:
    """Whether reading the name changes nothing the code can see.

    Before 3.13 reading a frame's locals refills the dictionary that `locals()` gave out earlier.
    """
    if sys.version_info >= (3, 13) or name.scope != "local":
        return True
    return _SHOWS_LOCALS.isdisjoint(code.co_names)


def _ask(frame: FrameType, names: tuple[_Candidate, ...], is_tensor: Callable[[object], bool]) -> Side:
    for side, name in names:
        value = _variable(frame, name)
        for attribute in name.attributes:
            value = _attribute(value, attribute)
        if value is not _MISSING:
            other: Side = "right" if side == "left" else "left"
            return side if is_tensor(value) else other
    return "unknown"


def _variable(frame: FrameType, name: Name) -> object:
    if name.scope == "local":
        return _local(frame, name.name)
    if name.scope == "class":
        names = frame.f_locals  # the class body's own dictionary, or whatever its metaclass prepared
        if type(names) is not dict:
            return _MISSING
        if name.name in names:
            return names[name.name]
    found: object = frame.f_globals.get(name.name, _MISSING)
    return frame.f_builtins.get(name.name, _MISSING) if found is _MISSING else found


def _local(frame: FrameType, name: str) -> object:
    if not frame.f_code.co_flags & _OPTIMIZED:
        return _MISSING  # a cell of a class body, which its frame does not show
    names = frame.f_locals
    value: object = names.get(name, _MISSING)
    if sys.version_info < (3, 13) and sys.getrefcount(names) <= _UNSHARED:
        names.clear()  # the frame would keep this copy, and with it every value in it, until it ends
    return value


def _attribute(value: object, name: str) -> object:
    """An attribute that is plain data: no property, no `__getattr__`, nothing that runs the object's code."""
    kind = type(value)
    if kind.__getattribute__ not in _ATTRIBUTE_READERS:
        return _MISSING
    in_class = _in_class(kind, name)
    if isinstance(in_class, MemberDescriptorType):
        return _slot(in_class, value)
    if hasattr(type(in_class), "__set__") or hasattr(type(in_class), "__delete__"):
        return _MISSING
    own = _own_attributes(value)
    if name in own:
        return own[name]
    if in_class is not _MISSING:
        return _MISSING if hasattr(type(in_class), "__get__") else in_class
    for store in _MODULE_STORES:
        kept = own.get(store)
        if type(kept) is dict and name in kept:
            return cast("dict[str, object]", kept)[name]
    return _MISSING


def _in_class(kind: type, name: str) -> object:
    for base in kind.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return _MISSING


def _slot(slot: MemberDescriptorType, value: object) -> object:
    try:
        return slot.__get__(value)
    except AttributeError:
        return _MISSING


def _own_attributes(value: object) -> dict[str, object]:
    stored = _in_class(type(value), "__dict__")
    if not isinstance(stored, (GetSetDescriptorType, MemberDescriptorType)):
        return {}
    own: object = stored.__get__(value)
    return cast("dict[str, object]", own) if type(own) is dict else {}
