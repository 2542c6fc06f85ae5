"""The compiled instructions of a code object, and what is remembered of each code object."""

from __future__ import annotations

import dis
import opcode
import weakref
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import cached_property
from types import CodeType
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")

_CACHE = 0  # filler after an instruction on 3.11 and later; no instruction has this number on 3.10
_ABSOLUTE_JUMPS = frozenset(dis.hasjabs)
_JUMPS = frozenset(dis.hasjrel) | _ABSOLUTE_JUMPS
_BACKWARD_JUMPS = frozenset(op for op in _JUMPS if "BACKWARD" in opcode.opname[op])
LEAVES = frozenset(
    op for op, name in enumerate(opcode.opname) if name.startswith(("RETURN_", "RAISE_", "RERAISE"))
)
"""Instructions after which the next one is never run."""
UNCONDITIONAL = frozenset(
    op for op in _JUMPS if opcode.opname[op].startswith(("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_ABSOLUTE"))
)
_PAIRS = {
    opcode.opmap[name]: (opcode.opmap[first], opcode.opmap[second])
    for name, first, second in (
        ("LOAD_FAST_LOAD_FAST", "LOAD_FAST", "LOAD_FAST"),
        ("STORE_FAST_LOAD_FAST", "STORE_FAST", "LOAD_FAST"),
        ("STORE_FAST_STORE_FAST", "STORE_FAST", "STORE_FAST"),
    )
    if name in opcode.opmap
}


class ByCode(Generic[T]):
    """What was worked out about each code object, by identity, forgotten with the code object.

    A code object hashes its whole bytecode at every look-up, so it is no dictionary key. With a `limit`, the
    older half is dropped when that many are there. Threads may share one.
    """

    __slots__ = ("_kept", "_limit", "_make")

    def __init__(self, make: Callable[[CodeType], T], *, limit: int = 0) -> None:
        self._make = make
        self._limit = limit
        self._kept: dict[int, tuple[T, weakref.ref[CodeType]]] = {}

    def __call__(self, code: CodeType) -> T:
        kept = self._kept.get(id(code))
        return self._add(code) if kept is None else kept[0]

    def __len__(self) -> int:
        return len(self._kept)

    def _add(self, code: CodeType) -> T:
        kept, key = self._kept, id(code)

        def forget(_: weakref.ref[CodeType]) -> None:
            kept.pop(key, None)

        value = self._make(code)
        if self._limit and len(kept) >= self._limit:
            for old in list(kept)[: self._limit // 2]:
                kept.pop(old, None)
        kept[key] = (value, weakref.ref(code, forget))
        return value


class Instruction(NamedTuple):
    start: int
    """Byte offset of the first EXTENDED_ARG prefix, or of the instruction itself."""
    offset: int
    op: int
    arg: int

    @property
    def name(self) -> str:
        return opcode.opname[self.op]


class Decoded:
    """The instructions of one code object, prefixes folded in, pairs taken apart, fillers left out."""

    def __init__(self, code: CodeType) -> None:
        self.instructions = decode(code.co_code)
        self._end = len(code.co_code)

    @cached_property
    def _begins(self) -> list[int]:
        return [instruction.start for instruction in self.instructions]

    @cached_property
    def jumps(self) -> Sequence[tuple[int, int]]:
        """(offset of the jump, offset it may jump to) of every jump, in code order."""
        return [
            (instruction.offset, self._target(index))
            for index, instruction in enumerate(self.instructions)
            if instruction.op in _JUMPS
        ]

    @cached_property
    def _targets(self) -> frozenset[int]:
        return frozenset(target for _, target in self.jumps)

    def _target(self, index: int) -> int:
        instruction = self.instructions[index]
        if instruction.op in _ABSOLUTE_JUMPS:
            return instruction.arg * 2
        following = self.instructions[index + 1].start if index + 1 < len(self.instructions) else self._end
        distance = instruction.arg * 2
        return following - distance if instruction.op in _BACKWARD_JUMPS else following + distance

    def index(self, offset: int) -> int:
        """Index of the instruction at a byte offset, or at that of its prefix or of the fillers after it."""
        return bisect_right(self._begins, offset) - 1

    def operand(self, last: int) -> int | None:
        """Index of the first instruction of the operand that ends with instruction `last`.

        None where the operand has a jump in it, or is reached by one: then several paths push it.
        """
        depth = 0
        for index in range(last, -1, -1):
            _, _, op, arg = self.instructions[index]
            if op in _JUMPS or self.instructions[index + 1].start in self._targets:
                return None
            depth += dis.stack_effect(op, arg if op >= dis.HAVE_ARGUMENT else None)
            if depth >= 1:
                return index if depth == 1 else None
        return None


def decode(raw: bytes) -> list[Instruction]:
    """Take bytecode apart; both halves of a paired instruction get its offset."""
    found: list[Instruction] = []
    start, prefix = -1, 0
    for offset in range(0, len(raw), 2):
        op = raw[offset]
        if op == _CACHE:
            continue
        arg = raw[offset + 1] | prefix
        if op == dis.EXTENDED_ARG:
            start, prefix = (offset if start < 0 else start), arg << 8
            continue
        begin = offset if start < 0 else start
        if op in _PAIRS:
            first, second = _PAIRS[op]
            found.append(Instruction(begin, offset, first, arg >> 4))
            found.append(Instruction(offset + 1, offset, second, arg & 15))  # no jump goes between the halves
        else:
            found.append(Instruction(begin, offset, op, arg))
        start, prefix = -1, 0
    return found


_decoded: ByCode[Decoded] = ByCode(Decoded, limit=32)


def decoded(code: CodeType) -> Decoded:
    """The decoded instructions of a code object; those of the last few asked for are kept."""
    return _decoded(code)
