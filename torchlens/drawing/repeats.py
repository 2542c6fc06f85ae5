"""Runs of like siblings: blocks that follow one another and are built alike."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

from torchlens.drawing.likeness import Likeness
from torchlens.drawing.scene import Box, Item

_LONGEST_PERIOD: Final = 12
"""Items that are looked at as one repeated group, as a block and the two ops behind it."""

_LEAST_SAVED: Final = 4
"""Nodes that folding is to save: two like ops or closed modules are clearer side by side."""


class Repeat(NamedTuple):
    """Successive items: `times` groups of `period` items, the groups being alike; also one item alone."""

    start: int
    period: int
    times: int

    def saves(self, sizes: Sequence[int]) -> int:
        """How many nodes fewer it takes if its groups are drawn once."""
        return sum(sizes[self.start + self.period : self.stop])

    @property
    def longer(self) -> Repeat:
        """The repeat with one more group."""
        return self._replace(times=self.times + 1)

    @property
    def stop(self) -> int:
        """One past its last item."""
        return self.start + self.period * self.times


def find_repeats(
    items: Sequence[Item], alike: Likeness, sizes: Sequence[int], *, passes: bool
) -> Iterator[Repeat]:
    """Cut a sequence of items into repeats, each the longest that begins where the one before ends.

    Different modules repeat, and groups of such with the ops between them if each feeds the next: three
    projections side by side, each with an op behind it, stay apart. With `passes` so do groups of the same
    modules and layers. `sizes` has the nodes that each item takes: what saves few of them is not folded.
    """
    rows = _Rows(
        [alike.numbers[item] for item in items], [_place(item) for item in items], items, alike.flows
    )
    at = 0
    while at < len(items):
        repeat = _longest(rows, at, passes)
        if repeat.saves(sizes) < _LEAST_SAVED:
            repeat = Repeat(at, 1, 1)
        yield repeat
        at = repeat.stop


class _Rows(NamedTuple):
    """What is told of each item of a sequence."""

    numbers: Sequence[int]
    """Alike items have the same."""
    places: Sequence[str | int]
    """The address of a module, the index of a layer."""
    items: Sequence[Item]
    flows: Collection[tuple[Item, Item]]

    def feeds_next(self, repeat: Repeat) -> bool:
        """Whether the last group of a repeat gives something to the group behind it."""
        last = self.items[repeat.stop - repeat.period : repeat.stop]
        following = self.items[repeat.stop : repeat.stop + repeat.period]
        return any((one, other) in self.flows for one in last for other in following)

    def modules(self, repeat: Repeat) -> list[str]:
        """Addresses of the modules in the last group of a repeat."""
        return [
            place
            for place in self.places[repeat.stop - repeat.period : repeat.stop]
            if isinstance(place, str)
        ]


def _place(item: Item) -> str | int:
    return item.address if isinstance(item, Box) else item.first.layer.index


def _longest(rows: _Rows, at: int, passes: bool) -> Repeat:
    best = Repeat(at, 1, 1)
    for period in range(1, _LONGEST_PERIOD + 1):
        first = Repeat(at, period, 1)
        if rows.numbers[at] != next(iter(rows.numbers[first.stop : first.stop + 1]), None):
            continue
        repeat = max(_of_modules(rows, first), _of_passes(rows, first) if passes else first)
        if repeat.times > 1 and repeat.stop > best.stop:
            best = repeat
    return best


def _of_modules(rows: _Rows, first: Repeat) -> Repeat:
    """The repeat of alike groups that hold other modules each."""
    repeat, seen = first, set(rows.modules(first))
    while seen and _is_repeated(rows.numbers, repeat):
        longer = repeat.longer
        modules = rows.modules(longer)
        if not seen.isdisjoint(modules) or (repeat.period > 1 and not rows.feeds_next(repeat)):
            break
        seen.update(modules)
        repeat = longer
    return repeat


def _of_passes(rows: _Rows, first: Repeat) -> Repeat:
    """The repeat of alike groups that are passes of the same modules and layers."""
    repeat = first
    while _is_repeated(rows.numbers, repeat) and _is_repeated(rows.places, repeat):
        repeat = repeat.longer
    return repeat


def _is_repeated(row: Sequence[object], repeat: Repeat) -> bool:
    """Whether what follows a repeat is as its first group."""
    return row[repeat.stop : repeat.stop + repeat.period] == row[repeat.start : repeat.start + repeat.period]
