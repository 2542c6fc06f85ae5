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


class Run(NamedTuple):
    """Successive items: `times` groups of `period` items, the groups being alike; one item alone is a run."""

    start: int
    period: int
    times: int

    def saves(self, sizes: Sequence[int]) -> int:
        """How many nodes fewer it takes if its groups are drawn once."""
        return sum(sizes[self.start + self.period : self.stop])

    @property
    def longer(self) -> Run:
        """The run with one more group."""
        return self._replace(times=self.times + 1)

    @property
    def stop(self) -> int:
        """One past its last item."""
        return self.start + self.period * self.times


def find_runs(items: Sequence[Item], alike: Likeness, sizes: Sequence[int], *, passes: bool) -> Iterator[Run]:
    """Cut a sequence of items into runs, each the longest that begins where the one before ends.

    Different modules repeat, and groups of such with the ops between them if each feeds the next: three
    projections side by side, each with an op behind it, stay apart. With `passes` so do groups of the same
    modules and layers. `sizes` has the nodes that each item takes: what saves few of them is not folded.
    """
    rows = _Rows(
        [alike.numbers[item] for item in items], [_place(item) for item in items], items, alike.flows
    )
    at = 0
    while at < len(items):
        run = _longest(rows, at, passes)
        if run.saves(sizes) < _LEAST_SAVED:
            run = Run(at, 1, 1)
        yield run
        at = run.stop


class _Rows(NamedTuple):
    """What is told of each item of a sequence."""

    numbers: Sequence[int]
    """Alike items have the same."""
    places: Sequence[str | int]
    """The address of a module, the index of a layer."""
    items: Sequence[Item]
    flows: Collection[tuple[Item, Item]]

    def feeds_next(self, run: Run) -> bool:
        """Whether the last group of a run gives something to the group behind it."""
        last = self.items[run.stop - run.period : run.stop]
        following = self.items[run.stop : run.stop + run.period]
        return any((one, other) in self.flows for one in last for other in following)

    def modules(self, run: Run) -> list[str]:
        """Addresses of the modules in the last group of a run."""
        return [place for place in self.places[run.stop - run.period : run.stop] if isinstance(place, str)]


def _place(item: Item) -> str | int:
    return item.address if isinstance(item, Box) else item.first.layer.index


def _longest(rows: _Rows, at: int, passes: bool) -> Run:
    best = Run(at, 1, 1)
    for period in range(1, _LONGEST_PERIOD + 1):
        first = Run(at, period, 1)
        if rows.numbers[at] != next(iter(rows.numbers[first.stop : first.stop + 1]), None):
            continue
        run = max(_of_modules(rows, first), _of_passes(rows, first) if passes else first)
        if run.times > 1 and run.stop > best.stop:
            best = run
    return best


def _of_modules(rows: _Rows, first: Run) -> Run:
    """The run of alike groups that hold other modules each."""
    run, seen = first, set(rows.modules(first))
    while seen and _is_repeated(rows.numbers, run):
        longer = run.longer
        modules = rows.modules(longer)
        if not seen.isdisjoint(modules) or (run.period > 1 and not rows.feeds_next(run)):
            break
        seen.update(modules)
        run = longer
    return run


def _of_passes(rows: _Rows, first: Run) -> Run:
    """The run of alike groups that are passes of the same modules and layers."""
    run = first
    while _is_repeated(rows.numbers, run) and _is_repeated(rows.places, run):
        run = run.longer
    return run


def _is_repeated(row: Sequence[object], run: Run) -> bool:
    """Whether what follows a run is as its first group."""
    return row[run.stop : run.stop + run.period] == row[run.start : run.start + run.period]
