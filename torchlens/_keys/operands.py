"""What an instruction does to which operands: an operator, a comparison, a call of something with a name."""

from __future__ import annotations

import sys
from types import CodeType
from typing import Literal, NamedTuple, TypeAlias

from torchlens._keys.bytecode import ByCode, Decoded, Instruction, decoded

Scope: TypeAlias = Literal["local", "global", "class"]


class Name(NamedTuple):
    """A variable or an attribute chain on one: `self.scale`."""

    scope: Scope
    name: str
    attributes: tuple[str, ...]


class Literally(NamedTuple):
    """A constant written into the code."""


Operand: TypeAlias = Name | Literally | None
"""None: some other expression, or one that several paths lead to."""


class Callee(NamedTuple):
    """The last name of what is called, and the name before it: (`add`, `operator`); None: no name there."""

    name: str | None
    owner: str | None


class Use(NamedTuple):
    """How one instruction uses its operands."""

    kind: Literal["binary", "inplace", "unary", "compare", "call", "other"]
    stem: str = ""
    """The operator as in its special method's name: `add`, `truediv`."""
    callee: Callee = Callee(None, None)
    positional: int | None = None
    """How many arguments the call writes in order; None: `*args`."""
    keywords: bool = False
    first: Callee = Callee(None, None)
    """The first argument of a call, read like a callee."""
    operands: tuple[Operand, Operand] = (None, None)
    """The two of a binary operator, or of a call with two arguments."""


_BINARY = (
    ("ADD", "add"),
    ("AND", "and"),
    ("FLOOR_DIVIDE", "floordiv"),
    ("LSHIFT", "lshift"),
    ("MATRIX_MULTIPLY", "matmul"),
    ("MULTIPLY", "mul"),
    ("MODULO" if sys.version_info < (3, 11) else "REMAINDER", "mod"),
    ("OR", "or"),
    ("POWER", "pow"),
    ("RSHIFT", "rshift"),
    ("SUBTRACT", "sub"),
    ("TRUE_DIVIDE", "truediv"),
    ("XOR", "xor"),
)
"""In the order of the argument of BINARY_OP; on 3.10 each has instructions of its own."""
_BINARY_BY_NAME = {f"BINARY_{name}": stem for name, stem in _BINARY}
_INPLACE_BY_NAME = {f"INPLACE_{name}": stem for name, stem in _BINARY}
_UNARY_BY_NAME = {"UNARY_NEGATIVE": "neg", "UNARY_POSITIVE": "pos", "UNARY_INVERT": "invert"}
_INTRINSIC_POSITIVE = 5  # `+x` is an intrinsic call with this number from 3.12 on
_CALLS = {"CALL", "CALL_KW", "CALL_FUNCTION", "CALL_METHOD", "CALL_FUNCTION_KW", "CALL_FUNCTION_EX"}
_KEYWORD_TUPLE_ON_TOP = {"CALL_KW", "CALL_FUNCTION_KW"}
_FLAG_BITS: dict[str, int] = {"LOAD_ATTR": 1, "LOAD_SUPER_ATTR": 2} if sys.version_info >= (3, 12) else {}
"""Low bits of an argument that are not part of the name's index."""
_GLOBAL_FLAG_BITS = 1 if sys.version_info >= (3, 11) else 0
_LOCAL_LOADS = {"LOAD_FAST", "LOAD_FAST_CHECK"}
_ATTRIBUTE_LOADS = {"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"}

_uses: ByCode[dict[int, Use]] = ByCode(lambda code: {})


def use(code: CodeType, offset: int) -> Use:
    """How the instruction at a frame's `f_lasti` uses its operands; worked out once."""
    known = _uses(code)
    found = known.get(offset)
    if found is None:
        found = known[offset] = _Reader(code).use(offset)
    return found


class _Reader:
    """Reads the operands of instructions of one code object back from its bytecode."""

    def __init__(self, code: CodeType) -> None:
        self._code = code
        self._decoded: Decoded = decoded(code)

    def use(self, offset: int) -> Use:
        index = self._decoded.index(offset)
        if self._decoded.instructions[index].name == "PRECALL":
            index += 1  # on 3.11 the interpreter makes the calls it knows at this half of the pair
        instruction = self._decoded.instructions[index]
        name, arg = instruction.name, instruction.arg
        if name == "BINARY_OP" and arg < 2 * len(_BINARY):
            stem = _BINARY[arg % len(_BINARY)][1]
            return self._binary(index, stem) if arg < len(_BINARY) else Use("inplace", stem)
        if name in _BINARY_BY_NAME:
            return self._binary(index, _BINARY_BY_NAME[name])
        if name in _INPLACE_BY_NAME:
            return Use("inplace", _INPLACE_BY_NAME[name])
        if name in _UNARY_BY_NAME:
            return Use("unary", _UNARY_BY_NAME[name])
        if name == "CALL_INTRINSIC_1" and arg == _INTRINSIC_POSITIVE:
            return Use("unary", "pos")
        if name in ("COMPARE_OP", "CONTAINS_OP"):
            return Use("compare")
        return self._call(index) if name in _CALLS else Use("other")

    def _binary(self, index: int, stem: str) -> Use:
        return Use("binary", stem, operands=self._pair(self._starts(index - 1, 2), index))

    def _call(self, index: int) -> Use:
        instruction = self._decoded.instructions[index]
        last, keywords = self._past_call_prefix(index)
        if instruction.name == "CALL_FUNCTION_EX":
            arguments, positional = 1 + (instruction.arg & 1), None
        else:
            arguments, positional = instruction.arg, instruction.arg - keywords
        starts = self._starts(last, arguments)
        if len(starts) < arguments:
            return Use("call", positional=positional, keywords=keywords > 0)
        bounds = [*starts, last + 1]
        return Use(
            "call",
            callee=self._callee(bounds[0] - 1),
            positional=positional,
            keywords=keywords > 0,
            first=self._callee(bounds[1] - 1) if arguments else Callee(None, None),
            operands=self._pair(starts, last + 1) if positional == 2 and not keywords else (None, None),
        )

    def _past_call_prefix(self, index: int) -> tuple[int, int]:
        """Index of the last instruction of the last argument, and the number of keyword arguments."""
        instructions = self._decoded.instructions
        last = index - 1
        if instructions[last].name == "PRECALL":
            last -= 1
        if instructions[last].name == "KW_NAMES":
            return last - 1, len(self._code.co_consts[instructions[last].arg])
        if instructions[index].name in _KEYWORD_TUPLE_ON_TOP:
            return last - 1, len(self._code.co_consts[instructions[last].arg])
        return last, 0

    def _starts(self, last: int, count: int) -> list[int]:
        """Where each of the `count` operands up to instruction `last` starts; fewer if one is unclear."""
        starts: list[int] = []
        for _ in range(count):
            start = self._decoded.operand(last)
            if start is None:
                break
            starts.insert(0, start)
            last = start - 1
        return starts

    def _pair(self, starts: list[int], end: int) -> tuple[Operand, Operand]:
        if len(starts) == 2:
            return self._operand(starts[0], starts[1]), self._operand(starts[1], end)
        return None, self._operand(starts[0], end) if starts else None

    def _operand(self, start: int, end: int) -> Operand:
        first, *rest = self._decoded.instructions[start:end]
        if first.name in ("LOAD_CONST", "LOAD_SMALL_INT"):
            return Literally() if not rest else None
        name, scope = self._variable(first), self._scope(first)
        if name is None or scope is None or any(i.name != "LOAD_ATTR" for i in rest):
            return None
        return Name(scope, name, tuple(self._attribute(i) for i in rest))

    def _callee(self, index: int) -> Callee:
        """Read the expression that ends with an instruction by its last two names."""
        instructions = self._decoded.instructions
        if index >= 0 and instructions[index].name == "PUSH_NULL":
            index -= 1
        if index < 0:
            return Callee(None, None)
        if instructions[index].name not in _ATTRIBUTE_LOADS:
            return Callee(self._variable(instructions[index]), None)
        owner = instructions[index - 1]
        of = self._attribute(owner) if owner.name in _ATTRIBUTE_LOADS else self._variable(owner)
        return Callee(self._attribute(instructions[index]), of)

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
            # with a NULL beside it the name is called, not used
            return None if sys.version_info >= (3, 11) and instruction.arg & 1 else "global"
        return "class" if name == "LOAD_NAME" else None
