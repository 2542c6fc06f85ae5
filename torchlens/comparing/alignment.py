"""Which op of one run is which of another.

Two runs are walked down from the space outside all module calls. What ran directly in two aligned module
calls, rows and the calls made there, is two sequences in capture order. They are aligned by their longest
common subsequence under a strict key; what is left between two aligned items is aligned under the next,
looser key, and so on; calls that no key aligned are opened, the deepest first, and what ran in them takes
their place. So an alignment never crosses itself, and its cost is that of the common subsequences.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, NamedTuple, TypeAlias

from torchlens._trace.views import Views
from torchlens.comparing.outline import Item, Outline, comes_first
from torchlens.comparing.places import Places
from torchlens.comparing.subsequence import common_subsequence

By: TypeAlias = Literal["site", "order"]
"""`site`: in the same module call the same place in the code; `order`: the same operation in between."""


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


class _Gap(NamedTuple):
    """Items of two runs that are still to be aligned, in capture order."""

    left: Sequence[Item]
    right: Sequence[Item]
    by: By = "site"
    """How the calls in which they ran were aligned; what is in calls aligned by order is so, too."""


_Key: TypeAlias = Callable[[Outline, Item], Hashable | None]


class _Aligner:
    """Goes through two runs from the outside in, with a list of gaps that are still to be aligned."""

    def __init__(self, left: Outline, right: Outline) -> None:
        self._left, self._right = left, right
        self._places = Places(left, right)
        self.rows: list[tuple[int, int, By]] = []
        self.calls: list[tuple[int, int]] = []
        self._gaps = [_Gap(left.items[0], right.items[0])]
        while self._gaps:
            self._align(self._gaps.pop())

    def turn(self) -> None:
        """Exchange the runs."""
        self.rows = [(right, left, by) for left, right, by in self.rows]
        self.calls = [(right, left) for left, right in self.calls]

    def _align(self, gap: _Gap) -> None:
        gaps = list(self._between(gap, self._by_site(gap), gap.by))
        for key in _LOOSER:
            gaps = [inner for gap in gaps for inner in self._between(gap, self._by_key(gap, key), "order")]
        self._gaps += [opened for gap in gaps if (opened := self._opened(gap))]

    def _by_site(self, gap: _Gap) -> list[tuple[int, int]]:
        left, right = self._left, self._right
        places, others = self._places.left, self._places.right
        return common_subsequence(
            [places[item] if item >= 0 else left.names(~item) for item in gap.left],
            [others[item] if item >= 0 else right.names(~item) for item in gap.right],
        )

    def _by_key(self, gap: _Gap, key: _Key) -> list[tuple[int, int]]:
        return common_subsequence(
            [key(self._left, item) for item in gap.left], [key(self._right, item) for item in gap.right]
        )

    def _between(self, gap: _Gap, found: Sequence[tuple[int, int]], by: By) -> Iterator[_Gap]:
        """Note what was found, and give the gaps that it leaves with something on both sides."""
        left, right, _ = gap
        from_left = from_right = 0
        for at, there in [*found, (len(left), len(right))]:
            if from_left < at and from_right < there:
                yield _Gap(left[from_left:at], right[from_right:there], gap.by)
            from_left, from_right = at + 1, there + 1
        for at, there in found:
            self._note(left[at], right[there], by)

    def _note(self, left: Item, right: Item, by: By) -> None:
        if left >= 0:
            self.rows.append((left, right, by))
        else:
            self.calls.append((~left, ~right))
            self._gaps.append(_Gap(self._left.items[~left], self._right.items[~right], by))

    def _opened(self, gap: _Gap) -> _Gap | None:
        """The gap with its deepest calls replaced by what ran in them; None if it has no calls."""
        heights = [self._left.heights[~item] for item in gap.left if item < 0]
        heights += [self._right.heights[~item] for item in gap.right if item < 0]
        if not heights:
            return None
        most = max(heights)
        return _Gap(_open(self._left, gap.left, most), _open(self._right, gap.right, most), "order")


def _open(outline: Outline, items: Sequence[Item], height: int) -> Sequence[Item]:
    found: list[Item] = []
    for item in items:
        if item < 0 and outline.heights[~item] == height:
            found += outline.items[~item]
        else:
            found.append(item)
    return found


def _like(outline: Outline, item: Item) -> Hashable:
    """The same operation with an output of the same shape; a call in which the same operations ran."""
    return (outline.operations[item], outline.shape(item)) if item >= 0 else outline.work(~item)


def _named(outline: Outline, item: Item) -> Hashable:
    """The same operation; a call of a module of the same name."""
    return outline.operations[item] if item >= 0 else (outline.names(~item)[0],)


def _of_class(outline: Outline, item: Item) -> Hashable | None:
    """A call of a module of the same class."""
    return None if item >= 0 else outline.names(~item)[1]


_LOOSER: Final[tuple[_Key, ...]] = (_like, _named, _of_class)
"""What aligns within the gaps that places in the code leave, one after the other."""
