"""Runs of like siblings: blocks that follow one another and are built alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from torchlens.drawing.likeness import Likeness
from torchlens.drawing.scene import Box, Item, Leaf

_LONGEST_PERIOD: Final = 12
"""Items that are looked at as one repeated group, as a block and the two ops behind it."""

_LEAST_SAVED: Final = 4
"""Nodes that folding is to save: two like ops or closed modules are clearer side by side."""


class Run(NamedTuple):
    """Successive items: `times` groups of `period` items, the groups being alike; one item alone is a run."""

    start: int
    period: int
    times: int

    def saves(self, sizes: Sequence[int]) -> int:
        """How many nodes fewer it takes if its groups are drawn once."""
        return sum(sizes[self.start + self.period : self.stop])

    @property
    def stop(self) -> int:
        """One past its last item."""
        return self.start + self.period * self.times


def find_runs(items: Sequence[Item], alike: Likeness, sizes: Sequence[int], *, passes: bool) -> Iterator[Run]:
    """Cut a sequence of items into runs, each the longest that begins where the one before ends.

    Groups of different modules repeat, with the ops between them; with `passes` so do groups of the same
    modules and layers. `sizes` has the nodes that each item takes: what saves few of them is not folded.
    """
    numbers = [alike[item] for item in items]
    at = 0
    while at < len(items):
        run = _longest(items, numbers, at, passes)
        if run.saves(sizes) < _LEAST_SAVED:
            run = Run(at, 1, 1)
        yield run
        at = run.stop


def _longest(items: Sequence[Item], numbers: Sequence[int], at: int, passes: bool) -> Run:
    best = Run(at, 1, 1)
    for period in range(1, _LONGEST_PERIOD + 1):
        first, second = slice(at, at + period), slice(at + period, at + 2 * period)
        if numbers[first] != numbers[second] or not _repeats(items[first], items[second], passes):
            continue  # asked before counting on, or a row that never folds takes quadratic time
        times = 2
        while numbers[at + times * period : at + (times + 1) * period] == numbers[first]:
            times += 1
        best = max(best, Run(at, period, times), key=lambda run: run.stop)
    return best


def _repeats(first: Sequence[Item], second: Sequence[Item], passes: bool) -> bool:
    """Whether two like groups hold other modules each, or are passes of the same ones."""
    ours, theirs = _addresses(first), _addresses(second)
    if ours and not set(ours) & set(theirs):
        return True
    return passes and ours == theirs and _layers(first) == _layers(second)


def _addresses(items: Sequence[Item]) -> list[str]:
    return [item.address for item in items if isinstance(item, Box)]


def _layers(items: Sequence[Item]) -> list[str]:
    return [item.first.layer.layer_label for item in items if isinstance(item, Leaf)]
