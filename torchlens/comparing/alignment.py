"""Which op of one run is which of another.

Two runs are walked down from the space outside all module calls. What ran directly in two module calls that
are one another, rows and the calls made there, is two sequences in capture order. Their longest common
subsequence by place in the code, and by name and class of the called modules, are the anchors; between
these, calls of modules of one name are anchors too. The rows that are left between two anchors, with those in
the calls left there, are aligned by their longest common subsequence of operations and shapes, then of
operations. Where the anchors are in the way, so that order alone finds a good deal more, order alone decides.
So an alignment never crosses itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, NamedTuple, TypeAlias

from torchlens._trace.views import Views
from torchlens.comparing.outline import Item, Outline, comes_first
from torchlens.comparing.places import Places
from torchlens.comparing.subsequence import Pairs, common_subsequence, gaps, refined

By: TypeAlias = Literal["site", "order"]
"""`site`: in the same module call the same place in the code; `order`: the same operation in between."""
_MISLED: Final = 0.9
"""Anchors that leave less than this part of what can be aligned are taken for chance likenesses."""


class Pair(NamedTuple):
    """An op of each run, by index."""

    a: int
    b: int
    by: By


@dataclass(frozen=True)
class Alignment:
    """The ops of two runs: those that are one another, and those of one run only, in capture order."""

    pairs: Sequence[Pair]
    """In the order of the first run."""
    only_a: Sequence[int]
    only_b: Sequence[int]
    calls: Sequence[tuple[int, int]]
    """The module calls that were aligned, by index; those outside any come with no entry."""

    @cached_property
    def b_of_a(self) -> dict[int, int]:
        """Op of the first run to that of the second."""
        return {pair.a: pair.b for pair in self.pairs}


def align(a: Views, b: Views) -> Alignment:
    """Align the ops of two runs; `align(b, a)` is the mirror image.

    What is compared is spelled out in both runs (module addresses and classes, names of functions, file
    names, lines, shapes), so they may be of different processes, files, versions or implementations.
    """
    one, other = Outline(a), Outline(b)
    if comes_first(one, other):
        aligner = _Aligner(one, other)
    else:
        aligner = _Aligner(other, one)
        aligner.turn()
    pairs = [
        Pair(ours, theirs, by)
        for left, right, by in sorted(aligner.rows)
        for ours, theirs in zip(a.reader.ops_of_row(left), b.reader.ops_of_row(right))
    ]
    ours, theirs = {pair.a for pair in pairs}, {pair.b for pair in pairs}
    return Alignment(
        pairs,
        [op for op in range(len(a.reader.numbers.rows)) if op not in ours],
        [op for op in range(len(b.reader.numbers.rows)) if op not in theirs],
        sorted(aligner.calls),
    )


class _Aligner:
    """Goes through two runs from the outside in."""

    def __init__(self, left: Outline, right: Outline) -> None:
        self._left, self._right = left, right
        self._places = Places(left, right)
        self.rows: list[tuple[int, int, By]] = []
        self.calls: Pairs = []
        self._open: Pairs = [(0, 0)]
        while self._open:
            self._align(*self._open.pop())

    def turn(self) -> None:
        """Exchange the runs."""
        self.rows = [(right, left, by) for left, right, by in self.rows]
        self.calls = [(right, left) for left, right in self.calls]

    def _align(self, left_call: int, right_call: int) -> None:
        left, right = self._left.items[left_call], self._right.items[right_call]
        anchors = self._anchors(left, right)
        between = [
            pair
            for one, other in gaps(anchors, left, right)
            if one and other
            for pair in self._in_order(one, other)
        ]
        in_anchors = sum(
            min(self._left.size([left[at]]), self._right.size([right[there]])) for at, there in anchors
        )
        found = in_anchors + len(between)
        if found < min(self._left.size(left), self._right.size(right)):
            flat = self._in_order(left, right)
            if found < _MISLED * len(flat):
                anchors, between = [], flat
        for at, there in anchors:
            self._note(left[at], right[there])
        self.rows.extend((one, other, "order") for one, other in between)

    def _anchors(self, left: Sequence[Item], right: Sequence[Item]) -> Pairs:
        """By place in the code and by the name and class of called modules; between these by name alone."""
        ours, theirs = self._left, self._right
        places, others = self._places.left, self._places.right
        exact = common_subsequence(
            [places[item] if item >= 0 else ours.names(~item) for item in left],
            [others[item] if item >= 0 else theirs.names(~item) for item in right],
        )
        return refined(
            exact,
            [None if item >= 0 else ours.telling_name(~item) for item in left],
            [None if item >= 0 else theirs.telling_name(~item) for item in right],
        )

    def _in_order(self, left: Sequence[Item], right: Sequence[Item]) -> Pairs:
        """The rows of some items and of all calls in them, by operation and shape, then by operation."""
        ours, theirs = self._left.rows_in(left), self._right.rows_in(right)
        operations = [self._left.operations[row] for row in ours]
        others = [self._right.operations[row] for row in theirs]
        found = common_subsequence(
            [(name, self._left.shape(row)) for name, row in zip(operations, ours)],
            [(name, self._right.shape(row)) for name, row in zip(others, theirs)],
        )
        found = refined(found, operations, others)
        if len(found) < min(len(ours), len(theirs)):
            shapeless = common_subsequence(operations, others)
            found = shapeless if len(found) < _MISLED * len(shapeless) else found
        return [(ours[at], theirs[there]) for at, there in found]

    def _note(self, left: Item, right: Item) -> None:
        if left >= 0:
            self.rows.append((left, right, "site"))
        else:
            self.calls.append((~left, ~right))
            self._open.append((~left, ~right))
