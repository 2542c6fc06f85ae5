"""What the instruction that a frame stands at does: an operator on two operands, a comparison, a call."""

from __future__ import annotations

from types import CodeType
from typing import Literal, NamedTuple

from torchlens._keys.bytecode import ByCode, decoded
from torchlens._keys.expressions import CALLS, Callee, Expressions, Operand, binary_stem, unary_stem

_NOBODY = Callee(None, None)


class Use(NamedTuple):
    """How one instruction uses its operands."""

    kind: Literal["binary", "inplace", "unary", "compare", "call", "other"]
    stem: str = ""
    """The operator as in its special method's name: `add`, `truediv`."""
    callee: Callee = _NOBODY
    positional: int | None = None
    """How many arguments the call writes in order; None: `*args`."""
    keywords: bool = False
    first: Callee = _NOBODY
    """The first argument of a call, read like a callee."""
    operands: tuple[Operand | None, Operand | None] = (None, None)
    """The two of a binary operator, or of a call with two arguments; None: some other expression."""


_uses: ByCode[dict[int, Use]] = ByCode(lambda code: {})


def use(code: CodeType, offset: int) -> Use:
    """What the instruction at a frame's `f_lasti` does; worked out once."""
    known = _uses(code)
    found = known.get(offset)
    if found is None:
        found = known[offset] = _read(code, offset)
    return found


def _read(code: CodeType, offset: int) -> Use:
    instructions, expressions = decoded(code).instructions, Expressions(code)
    index = decoded(code).index(offset)
    if instructions[index].name == "PRECALL":
        index += 1  # on 3.11 the interpreter makes the calls it knows at this half of the pair
    instruction = instructions[index]
    binary, unary = binary_stem(instruction), unary_stem(instruction)
    if binary is not None:
        stem, inplace = binary
        pair = expressions.pair(expressions.starts(index - 1, 2), index)
        return Use("inplace", stem) if inplace else Use("binary", stem, operands=pair)
    if unary is not None:
        return Use("unary", unary)
    if instruction.name in ("COMPARE_OP", "CONTAINS_OP"):
        return Use("compare")
    return _read_call(expressions, index) if instruction.name in CALLS else Use("other")


def _read_call(expressions: Expressions, index: int) -> Use:
    starts, positional, keywords = expressions.arguments(index)
    if not starts:
        return Use("call", positional=positional, keywords=keywords)
    two = positional == 2 and not keywords
    return Use(
        "call",
        callee=expressions.callee(starts[0] - 1),
        positional=positional,
        keywords=keywords,
        first=expressions.callee(starts[1] - 1) if len(starts) > 1 else _NOBODY,
        operands=expressions.pair(starts[:2], starts[2]) if two else (None, None),
    )
