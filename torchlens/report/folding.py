"""Which entries of the tree get a row of their own, and which are folded into one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from torchlens.report.rows import Row, closed_row, free_row, like_row, rest_row, row_of, row_with_layer
from torchlens.report.tree import Entry

MOST_ROWS: Final = 150
"""A tree with more rows is folded further, then opened less deep."""
_MOST_ITEMS: Final = 60
_HEAD, _TAIL = 40, 5
"""Of more items than `_MOST_ITEMS` in one entry, the first and last ones are shown."""
_SHORT_RUN: Final = 3
"""Fewer like siblings than this are not folded where they take a row each anyway."""


def fold_tree(top: Entry, *, fold: bool, depth: int | None) -> tuple[Row, int | None]:
    """The rows of a tree, and how many modules below the root they go (None: all).

    Without a depth the tree is opened as deep as it fits `MOST_ROWS`; without folding it is opened whole.
    """
    only = top.items[0] if len(top.items) == 1 and top.items[0].is_module else None
    start, level = (only, 0) if only is not None else (top, -1)
    rows, limit = row_of(start), depth
    for folding in _attempts(fold, depth, _depth(start) + level):
        rows, limit = folding.row(start, level), folding.depth
        if sum(1 for _ in rows.walk()) <= MOST_ROWS:
            break
    return rows, limit


def _attempts(fold: bool, depth: int | None, deepest: int) -> Iterator[_Folding]:
    yield _Folding(fold, depth)
    if fold and depth is None:
        yield _Folding(fold, None, across_sizes=True)
        for limit in range(deepest - 1, 0, -1):
            yield _Folding(fold, limit, across_sizes=True)


def _depth(entry: Entry) -> int:
    return max((1 + _depth(item) for item in entry.items if item.is_module), default=0)


@dataclass(frozen=True, slots=True)
class _Folding:
    fold: bool
    depth: int | None
    across_sizes: bool = False
    """Whether modules of one structure are alike also if their sizes differ."""

    def row(self, entry: Entry, level: int) -> Row:
        """The row of an entry `level` modules below the root, with those below it."""
        if entry.repeats and self.fold:
            row = row_of(entry)
            row.note, row.hides = f"= {entry.repeats}", True
            return row
        layer = self._only_layer(entry)
        if layer is not None:
            return row_with_layer(entry, layer)
        if self.depth is not None and level >= self.depth and entry.items:
            return closed_row(entry)
        row = row_of(entry)
        row.items = self._rows_of(entry.items, level + 1)
        if self.fold and len(row.items) > _MOST_ITEMS:
            row.items[_HEAD:-_TAIL] = [rest_row(row.items[_HEAD:-_TAIL])]
        return row

    def _only_layer(self, entry: Entry) -> Entry | None:
        """The one layer of a module that computes something, if it has no more than that."""
        layers = entry.items
        if not entry.is_module or not layers or any(item.is_module for item in layers):
            return None
        if len(layers) == 1:
            return layers[0]
        costly = [layer for layer in layers if not layer.is_free]
        return costly[0] if self.fold and len(costly) == 1 else None

    def _rows_of(self, items: Sequence[Entry], level: int) -> list[Row]:
        rows: list[Row] = []
        shown: dict[int, Entry] = {}
        at = 0
        while at < len(items):
            run = self._run_from(items, at, shown) if self.fold else ()
            if run:
                first = shown.get(self._kind(run[0]))
                rows.append(free_row(run) if first is None else like_row(run, first))
            else:
                rows.append(self.row(items[at], level))
                if items[at].is_module:
                    shown.setdefault(self._kind(items[at]), items[at])
            at += len(run) or 1
        return rows

    def _run_from(self, items: Sequence[Entry], at: int, shown: dict[int, Entry]) -> Sequence[Entry]:
        """The items that one row stands for: modules like one that is shown, or layers that compute nothing.

        Empty where nothing folds.
        """
        first, end = items[at], at + 1
        if first.is_module:
            if self._kind(first) not in shown:
                return ()
            while end < len(items) and self._kind(items[end]) == self._kind(first):
                end += 1
            takes_one_row = not first.items or self._only_layer(first) is not None
            least = _SHORT_RUN if takes_one_row else 1
        else:
            while end < len(items) and first.is_free and items[end].is_free:
                end += 1
            least = 2
        return items[at:end] if end - at >= least else ()

    def _kind(self, entry: Entry) -> int:
        return entry.kin if self.across_sizes else entry.alike
