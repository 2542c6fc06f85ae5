"""Which layer of one description is which of another: by type and module, in order."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final, TypeAlias

from torchlens.testing.description import LayerLine

_MOST_PAIRS: Final = 4_000_000
"""Above so many pairs of layers to compare, types that occur often start no match."""

Key: TypeAlias = Callable[[LayerLine], Hashable]


@dataclass(frozen=True, slots=True)
class Pair:
    """A layer of the old description and what is in its place in the new one; None where nothing is."""

    old: int | None
    new: int | None


def align(old: Sequence[LayerLine], new: Sequence[LayerLine]) -> list[Pair]:
    """Pairs in the order of both. Labels are no help: one new `relu` renumbers all that follow."""
    keys: tuple[Key, ...] = (lambda line: (line.type, line.module), lambda line: line.type)
    return list(_aligned(old, new, range(len(old)), range(len(new)), keys))


def _aligned(
    old: Sequence[LayerLine], new: Sequence[LayerLine], left: range, right: range, keys: tuple[Key, ...]
) -> Iterator[Pair]:
    """What the first key does not match is tried by the next; what none does is replaced, gone or new."""
    if not keys:
        alike = len(left) == len(right)
        yield from (Pair(*both) for both in zip(left, right)) if alike else _unmatched(left, right)
        return
    ours, theirs = [keys[0](old[at]) for at in left], [keys[0](new[at]) for at in right]
    start, end = _shared_ends(ours, theirs)
    yield from (Pair(*both) for both in zip(left[:start], right[:start]))
    inner, other = left[start : len(left) - end], right[start : len(right) - end]
    matcher = SequenceMatcher(
        None,
        ours[start : len(ours) - end],
        theirs[start : len(theirs) - end],
        autojunk=len(inner) * len(other) > _MOST_PAIRS,
    )
    for tag, low, high, from_, to in matcher.get_opcodes():
        if tag == "equal":
            yield from (Pair(*both) for both in zip(inner[low:high], other[from_:to]))
        else:
            yield from _aligned(old, new, inner[low:high], other[from_:to], keys[1:])
    yield from (Pair(*both) for both in zip(left[len(left) - end :], right[len(right) - end :]))


def _unmatched(left: range, right: range) -> Iterator[Pair]:
    yield from (Pair(at, None) for at in left)
    yield from (Pair(None, at) for at in right)


def _shared_ends(ours: Sequence[Hashable], theirs: Sequence[Hashable]) -> tuple[int, int]:
    """How many keys are the same at the start, and how many of the rest at the end."""
    shorter = min(len(ours), len(theirs))
    start = next((at for at in range(shorter) if ours[at] != theirs[at]), shorter)
    rest = shorter - start
    end = next((at for at in range(rest) if ours[-1 - at] != theirs[-1 - at]), rest)
    return start, end
