"""On which side of an operator the tensor stood, read from the running frame without running any of its code.

Torch tells `x + 1` and `1 + x` apart by nothing that it passes on.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Literal, NamedTuple, TypeAlias

from torchlens._keys.bytecode import ByCode
from torchlens._keys.expressions import Operand
from torchlens._keys.lookups import MISSING, read
from torchlens._keys.uses import Use, use
from torchlens._records import Side

SIDED = frozenset({"add", "mul"})
"""Torch's names of the operators whose reflected form has the same name; others come as `__rsub__`."""

_OPERATOR_FUNCTIONS = frozenset({"add", "mul", "__add__", "__mul__", "iadd", "imul", "__iadd__", "__imul__"})
_SHOWS_LOCALS = frozenset({"locals", "vars", "dir", "eval", "exec", "f_locals"})
_NUMBERS = (int, float, complex, bool)
_MATH = tuple(
    value for name, value in vars(math).items() if callable(value) and name not in ("prod", "sumprod")
)
_NUMBER_FUNCTIONS = frozenset(id(function) for function in (*_MATH, *_NUMBERS, len))
"""Functions, by identity, whose result is a number whatever they are given."""
_Candidate: TypeAlias = tuple[Literal["left", "right"], Operand]


class _Plan(NamedTuple):
    """How to decide at one instruction: a fixed answer, or operands; the first that can be read tells."""

    answer: Side
    candidates: tuple[_Candidate, ...] = ()


_plans: ByCode[dict[int, _Plan]] = ByCode(lambda code: {})


def needs_side(name: str) -> bool:
    """Whether a call of this name has a side to ask for when its second argument is no tensor."""
    return name in SIDED


def side_of_tensor(frame: FrameType, is_tensor: Callable[[object], bool]) -> Side:
    """Where the tensor stood in the operator that `frame` is executing; the other operand is none.

    None if the instruction is no binary operator: a call by name tells by itself. `is_tensor` must not run
    code of the object it is given (`issubclass(type(value), Tensor)`).
    """
    plan = _plan_at(frame.f_code, frame.f_lasti)
    return _ask(frame, plan.candidates, is_tensor) if plan.candidates else plan.answer


def is_fixed_side(frame: FrameType) -> bool:
    """Whether `side_of_tensor` says the same each time that `frame` executes this instruction."""
    return not _plan_at(frame.f_code, frame.f_lasti).candidates


def _plan_at(code: CodeType, offset: int) -> _Plan:
    plans = _plans(code)
    plan = plans.get(offset)
    if plan is None:
        plan = plans[offset] = _plan(code, offset)
    return plan


def _plan(code: CodeType, offset: int) -> _Plan:
    found = use(code, offset)
    if found.kind == "inplace":
        return _Plan("right")  # a tensor on the left would have arrived as its in-place form
    if not _applies_operator(found):
        return _Plan(None)
    left, right = found.operands
    if right is not None and right.is_constant:
        return _Plan("left")
    if left is not None and left.is_constant:
        return _Plan("right")
    candidates: list[_Candidate] = []
    if left is not None and _readable(code, left):
        candidates.append(("left", left))
    if right is not None and _readable(code, right):
        candidates.append(("right", right))
    candidates.sort(key=lambda candidate: _cost(candidate[1]))
    return _Plan("unknown", tuple(candidates))


def _applies_operator(found: Use) -> bool:
    function = found.kind == "call" and found.positional == 2 and not found.keywords
    return found.kind == "binary" or (function and found.callee.name in _OPERATOR_FUNCTIONS)


def _readable(code: CodeType, operand: Operand) -> bool:
    """Whether reading the names changes nothing the code can see.

    Before 3.13 reading a frame's locals refills the dictionary that `locals()` gave out earlier.
    """
    if sys.version_info >= (3, 13) or not _has_locals(operand):
        return True
    return _SHOWS_LOCALS.isdisjoint(code.co_names)


def _has_locals(operand: Operand) -> bool:
    return any(name.scope == "local" for name in operand.names + operand.functions)


def _cost(operand: Operand) -> tuple[bool, int]:
    return _has_locals(operand), len(operand.names) + len(operand.functions)


def _ask(frame: FrameType, candidates: tuple[_Candidate, ...], is_tensor: Callable[[object], bool]) -> Side:
    for side, operand in candidates:
        found = _is_tensor(frame, operand, is_tensor)
        if found is not None:
            other: Side = "right" if side == "left" else "left"
            return side if found else other
    return "unknown"


def _is_tensor(frame: FrameType, operand: Operand, is_tensor: Callable[[object], bool]) -> bool | None:
    """Whether the operand is a tensor, or arithmetic with one in it; None: that cannot be told."""
    for function in operand.functions:
        if id(read(frame, function)) not in _NUMBER_FUNCTIONS:
            return None
    found = False
    for name in operand.names:
        value = read(frame, name)
        if value is MISSING:
            return None
        if is_tensor(value):
            found = True
        elif not operand.bare and type(value) not in _NUMBERS:
            return None
    return found
