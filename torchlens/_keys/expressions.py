"""Expressions read back from bytecode: names, attribute chains, arithmetic on them, calls of functions."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import CodeType
from typing import Literal, NamedTuple, TypeAlias

from torchlens._keys.bytecode import Instruction, decoded

Scope: TypeAlias = Literal["local", "global", "class"]


class Name(NamedTuple):
    """A variable or an attribute chain on one: `self.scale`."""

    scope: Scope
    name: str
    attributes: tuple[str, ...] = ()


class Operand(NamedTuple):
    """An expression made of constants, names, and calls of named functions, by arithmetic."""

    names: tuple[Name, ...] = ()
    functions: tuple[Name, ...] = ()
    bare: bool = False
    """It is a name and nothing else."""

    @property
    def is_constant(self) -> bool:
        return not self.names and not self.functions


class Callee(NamedTuple):
    """The last name of what is called, and the name before it: (`add`, `operator`); None: no name there."""

    name: str | None
    owner: str | None


class Arguments(NamedTuple):
    """The arguments of a call, as far as they can be told apart."""

    starts: Sequence[int]
    """Index of the first instruction of each, and of what follows the last; empty if they can't be told."""
    positional: int | None
    """How many are written in order; None: `*args`."""
    keywords: bool


BINARY_STEMS = {
    "ADD": "add",
    "AND": "and",
    "FLOOR_DIVIDE": "floordiv",
    "LSHIFT": "lshift",
    "MATRIX_MULTIPLY": "matmul",
    "MULTIPLY": "mul",
    "MODULO" if sys.version_info < (3, 11) else "REMAINDER": "mod",
    "OR": "or",
    "POWER": "pow",
    "RSHIFT": "rshift",
    "SUBTRACT": "sub",
    "TRUE_DIVIDE": "truediv",
    "XOR": "xor",
}
"""In the order of the argument of BINARY_OP; on 3.10 each has instructions of its own."""
_STEMS = tuple(BINARY_STEMS.values())
_INTRINSIC_POSITIVE = 5  # `+x` is an intrinsic call with this number from 3.12 on
_UNARY_STEMS = {"UNARY_NEGATIVE": "neg", "UNARY_POSITIVE": "pos", "UNARY_INVERT": "invert"}
CALLS = frozenset({"CALL", "CALL_KW", "CALL_FUNCTION", "CALL_METHOD", "CALL_FUNCTION_KW", "CALL_FUNCTION_EX"})
_KEYWORD_TUPLE_ON_TOP = frozenset({"CALL_KW", "CALL_FUNCTION_KW"})
_FLAG_BITS: dict[str, int] = {"LOAD_ATTR": 1, "LOAD_SUPER_ATTR": 2} if sys.version_info >= (3, 12) else {}
"""Low bits of an argument that are not part of the name's index."""
_GLOBAL_FLAG_BITS = 1 if sys.version_info >= (3, 11) else 0
_CONSTANTS = frozenset({"LOAD_CONST", "LOAD_SMALL_INT"})
_LOCAL_LOADS = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK"})
_ATTRIBUTE_LOADS = frozenset({"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"})


def binary_stem(instruction: Instruction) -> tuple[str, bool] | None:
    """The operator of a binary instruction, and whether it is the in-place form."""
    name, arg = instruction.name, instruction.arg
    if name == "BINARY_OP":
        return (_STEMS[arg % len(_STEMS)], arg >= len(_STEMS)) if arg < 2 * len(_STEMS) else None
    form, _, operator = name.partition("_")
    if form in ("BINARY", "INPLACE") and operator in BINARY_STEMS:
        return BINARY_STEMS[operator], form == "INPLACE"
    return None


def unary_stem(instruction: Instruction) -> str | None:
    """The operator of a unary instruction."""
    if instruction.name == "CALL_INTRINSIC_1" and instruction.arg == _INTRINSIC_POSITIVE:
        return "pos"
    return _UNARY_STEMS.get(instruction.name)


class Expressions:
    """The expressions of one code object, each asked for by the index of its last instruction."""

    def __init__(self, code: CodeType) -> None:
        self._code = code
        self._decoded = decoded(code)
        self._instructions = self._decoded.instructions

    def starts(self, last: int, count: int) -> list[int]:
        """Where each of the `count` operands up to instruction `last` starts; fewer if one is unclear."""
        found: list[int] = []
        for _ in range(count):
            start = self._decoded.operand(last)
            if start is None:
                break
            found.insert(0, start)
            last = start - 1
        return found

    def operand(self, last: int) -> Operand | None:
        """The expression, if it is of the kinds an `Operand` can be; its extent must be clear."""
        instruction = self._instructions[last]
        if instruction.name in _CONSTANTS:
            return Operand()
        name = self._name(last)
        if name is not None:
            return Operand((name,), bare=True)
        if instruction.name in CALLS:
            function = self._function(last)
            return None if function is None else Operand(functions=(function,))
        if unary_stem(instruction) is not None:
            inner = self.operand(last - 1)
            return None if inner is None else inner._replace(bare=False)
        stem = binary_stem(instruction)
        return self._arithmetic(last) if stem is not None and not stem[1] else None

    def _arithmetic(self, last: int) -> Operand | None:
        left, right = self.pair(self.starts(last - 1, 2), last)
        if left is None or right is None:
            return None
        return Operand(left.names + right.names, left.functions + right.functions)

    def pair(self, starts: Sequence[int], end: int) -> tuple[Operand | None, Operand | None]:
        """The two operands that start there, the second ending before instruction `end`."""
        right = self.operand(end - 1) if starts else None
        return (self.operand(starts[1] - 1) if len(starts) == 2 else None), right

    def arguments(self, index: int) -> Arguments:
        """The arguments of a call instruction."""
        instruction, last, keywords = self._instructions[index], index - 1, 0
        if self._instructions[last].name == "PRECALL":
            last -= 1
        top = self._instructions[last]
        if top.name == "KW_NAMES" or instruction.name in _KEYWORD_TUPLE_ON_TOP:
            last, keywords = last - 1, len(self._code.co_consts[top.arg])
        if instruction.name == "CALL_FUNCTION_EX":
            count, positional = 1 + (instruction.arg & 1), None
        else:
            count, positional = instruction.arg, instruction.arg - keywords
        found = self.starts(last, count)
        return Arguments([*found, last + 1] if len(found) == count else [], positional, keywords > 0)

    def callee(self, last: int) -> Callee:
        """The last two names of an expression that is called, or could be."""
        if last >= 0 and self._instructions[last].name == "PUSH_NULL":
            last -= 1
        if last < 0:
            return Callee(None, None)
        instruction, owner = self._instructions[last], self._instructions[last - 1]
        if instruction.name not in _ATTRIBUTE_LOADS:
            return Callee(self._variable(instruction), None)
        of = self._attribute(owner) if owner.name in _ATTRIBUTE_LOADS else self._variable(owner)
        return Callee(self._attribute(instruction), of)

    def _function(self, index: int) -> Name | None:
        """The name of what a call calls."""
        starts = self.arguments(index).starts
        if not starts:
            return None
        last = starts[0] - 1
        return self._name(last - 1 if self._instructions[last].name == "PUSH_NULL" else last)

    def _name(self, last: int) -> Name | None:
        attributes: list[str] = []
        while self._instructions[last].name in ("LOAD_ATTR", "LOAD_METHOD"):
            attributes.insert(0, self._attribute(self._instructions[last]))
            last -= 1
        variable, scope = self._variable(self._instructions[last]), self._scope(self._instructions[last])
        return (
            Name(scope, variable, tuple(attributes)) if variable is not None and scope is not None else None
        )

    def _attribute(self, instruction: Instruction) -> str:
        return self._code.co_names[instruction.arg >> _FLAG_BITS.get(instruction.name, 0)]

    def _variable(self, instruction: Instruction) -> str | None:
        name, arg, code = instruction.name, instruction.arg, self._code
        if name in _LOCAL_LOADS:
            return code.co_varnames[arg] if arg < len(code.co_varnames) else self._cell(arg)
        if name == "LOAD_GLOBAL":
            return code.co_names[arg >> _GLOBAL_FLAG_BITS]
        if name == "LOAD_NAME":
            return code.co_names[arg]
        return self._cell(arg) if name in ("LOAD_DEREF", "LOAD_CLASSDEREF") else None

    def _cell(self, arg: int) -> str:
        code = self._code
        if sys.version_info < (3, 11):
            return (code.co_cellvars + code.co_freevars)[arg]
        own = tuple(name for name in code.co_cellvars if name not in code.co_varnames)
        return (code.co_varnames + own + code.co_freevars)[arg]

    def _scope(self, instruction: Instruction) -> Scope | None:
        name = instruction.name
        if name in _LOCAL_LOADS or name == "LOAD_DEREF":
            return "local"
        if name == "LOAD_GLOBAL":
            return "global"
        return "class" if name == "LOAD_NAME" else None
