"""Which written place an instruction belongs to, and where that stands in the source.

The compiler copies code: the condition of a `while`, the body of a `finally`. All copies are one place. And
it gives several instructions one source span: the comparisons of `a < b < c`. Those are several places.
"""

from __future__ import annotations

import opcode
import sys
from collections.abc import Hashable, Sequence
from dis import EXTENDED_ARG
from types import CodeType
from typing import NamedTuple, TypeAlias

from torchlens._keys.bytecode import LEAVES, UNCONDITIONAL, ByCode, Decoded, Instruction, decoded


class Span(NamedTuple):
    """Where an instruction stands: lines from 1, columns from 0 in UTF-8 bytes; None: not known."""

    line: int | None
    end_line: int | None
    column: int | None
    end_column: int | None


class _Place(NamedTuple):
    key: Hashable
    span: Span


_Position: TypeAlias = tuple[int | None, int | None, int | None, int | None]

_known: ByCode[dict[int, _Place]] = ByCode(lambda code: {})


def instruction_key(code: CodeType, offset: int) -> Hashable:
    """A value that two offsets of one code object share exactly if they are the same written place.

    `offset` is a frame's `f_lasti`; it may lie in the fillers after the instruction.
    """
    known = _known(code)
    place = known.get(offset)
    if place is None:
        place = known[offset] = _place(code, offset)
    return place.key


def span(code: CodeType, offset: int) -> Span:
    """Where the instruction at a frame's `f_lasti` stands in the source."""
    known = _known(code)
    place = known.get(offset)
    if place is None:
        place = known[offset] = _place(code, offset)
    return place.span


if sys.version_info >= (3, 11):
    # on 3.11 this comes right before each CALL, and a call that has run often is made there
    _PRECALL = opcode.opmap.get("PRECALL", -1)
    _COMPARISONS = frozenset(opcode.opmap[name] for name in ("COMPARE_OP", "IS_OP", "CONTAINS_OP"))
    _FAMILY = [min(_COMPARISONS) if op in _COMPARISONS else op for op in range(256)]

    def _read_layout(code: CodeType) -> tuple[Sequence[_Position], bytes]:
        """The positions and the bytes of a code object, one position for every two bytes."""
        return list(code.co_positions()), code.co_code

    _layout: ByCode[tuple[Sequence[_Position], bytes]] = ByCode(_read_layout, limit=32)

    def _place(code: CodeType, offset: int) -> _Place:
        positions, raw = _layout(code)
        unit = offset // 2
        while unit > 0 and raw[2 * unit] == 0:
            unit -= 1
        if raw[2 * unit] == _PRECALL:
            unit += 2
            while raw[2 * unit] == EXTENDED_ARG:
                unit += 1
        where = Span(*positions[unit])
        if where.line is None or where.column is None or where[::2] == where[1::2]:
            return _Place(2 * unit, where)
        return _Place((where, _ordinal(code, positions, raw, unit)), where)

    def _ordinal(code: CodeType, positions: Sequence[_Position], raw: bytes, unit: int) -> int:
        """How many instructions of this kind and span come earlier in the same copy of the expression."""
        first, alike = _expression(positions, raw, unit)
        if not alike:
            return 0  # nearly always; nothing has to be decoded
        edge = _copy_start(decoded(code), positions, unit, first)
        return sum(k >= edge for k in alike)

    def _expression(positions: Sequence[_Position], raw: bytes, unit: int) -> tuple[int, list[int]]:
        """Where the run of spans inside that of `unit` begins, and the units in it of its kind and span."""
        where, family = positions[unit], _FAMILY[raw[2 * unit]]
        line, end_line, column, end_column = where
        start, end = (line, column), (end_line, end_column)
        alike: list[int] = []
        for k in range(unit - 1, -1, -1):
            op = raw[2 * k]
            if op == 0:
                continue
            position = positions[k]
            if position == where:
                if _FAMILY[op] == family:
                    alike.append(k)
            else:
                at, until, left, right = position
                if at is not None and (left is None or (at, left) < start or (until, right) > end):
                    return k + 1, alike
            if op in LEAVES:
                return k + 1, alike
        return 0, alike

    def _copy_start(code: Decoded, positions: Sequence[_Position], unit: int, first: int) -> int:
        """First unit after the last point between `first` and `unit` where an earlier compiled copy ends.

        That is a jump out of the expression, or, where a `while` has no body, the target of the jump that
        closes the loop, which has the span of the whole condition.
        """
        edge, offset = first, 2 * unit
        unconditional = {i.offset for i in code.instructions if i.op in UNCONDITIONAL}
        for source, target in code.jumps:
            leaves = source < offset and source in unconditional and not 2 * first <= target <= offset
            closes = target <= offset < source and positions[source // 2] == positions[unit]
            if leaves or closes:
                edge = max(edge, source // 2 + 1 if leaves else target // 2)
        return edge

else:
    _TESTS = frozenset(opcode.opmap[name] for name in ("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE"))

    def _place(code: CodeType, offset: int) -> _Place:
        return _Place(_first_copies(code).get(offset, offset), Span(_line(code, offset), None, None, None))

    def _line(code: CodeType, offset: int) -> int | None:
        return next((line for start, end, line in code.co_lines() if start <= offset < end), None)

    def _find_copies(code: CodeType) -> dict[int, int]:
        """Offsets in the second copy of each `while` condition, each with its twin in the first copy."""
        twins: dict[int, int] = {}
        if not _has_loop(code.co_code):
            return twins
        loops = decoded(code)
        for source, target in loops.jumps:
            closing = loops.index(source)
            if target <= source and loops.instructions[closing].op in _TESTS:
                opening = _opening_test(loops, loops.index(target))
                if opening is not None:
                    _pair_up(code, loops.instructions, closing, opening, twins)
        return twins

    def _has_loop(raw: bytes) -> bool:
        """Whether any conditional jump goes backward; most code has none, and need not be decoded."""
        low = (k for k in range(0, len(raw), 2) if raw[k] in _TESTS)
        return any(raw[k - 2] == EXTENDED_ARG or raw[k + 1] * 2 <= k for k in low)

    def _opening_test(loops: Decoded, body: int) -> int | None:
        """The conditional jump that ends the first copy of the condition of the loop with this body.

        It is right before the body, or, in a chained comparison, before a jump to the body: there the path
        that drops the middle operand lies in between.
        """
        target = loops.instructions[body].start
        ends = [loops.index(source) for source, to in loops.jumps if to == target and source < target]
        for end in [body, *reversed(ends)]:
            enters = end == body or loops.instructions[end].op in UNCONDITIONAL
            if enters and end and loops.instructions[end - 1].op in _TESTS:
                return end - 1
        return None

    def _pair_up(
        code: CodeType, instructions: Sequence[Instruction], closing: int, opening: int, twins: dict[int, int]
    ) -> None:
        """Walk back from both tests while they agree; where a jump goes may differ."""
        body, second, first = opening + 1, instructions[closing], instructions[opening]
        agree = _line(code, second.offset) == _line(code, first.offset)
        while agree and closing >= body and opening >= 0:
            twins[second.offset] = first.offset
            closing, opening = closing - 1, opening - 1
            second, first = instructions[closing], instructions[opening]
            same_argument = second.arg == first.arg or second.op in _TESTS
            agree = second.op == first.op and same_argument
            agree = agree and _line(code, second.offset) == _line(code, first.offset)

    _first_copies: ByCode[dict[int, int]] = ByCode(_find_copies)
