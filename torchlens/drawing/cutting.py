"""What is left out of a row that is too long: the middle, on each side of what has to stay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def middles_of(sizes: Sequence[int], kept: Sequence[bool], most: int) -> list[range]:
    """The entries of a row to leave out, so that the sizes of the others sum up to `most` at most.

    What is to be kept does not count. Each stretch between such entries gets room by its size, four fifths of
    it at its start. None where the row is short enough.
    """
    total = sum(size for size, is_kept in zip(sizes, kept) if not is_kept)
    if total <= most:
        return []
    part = most / total
    cut = (_middle(sizes, stretch, part) for stretch in _stretches(kept))
    return [left_out for left_out in cut if left_out]


def _middle(sizes: Sequence[int], stretch: range, part: float) -> range:
    room = part * sum(sizes[at] for at in stretch)
    start, stop = stretch.start, stretch.stop
    head, tail = room * 0.8, room * 0.2
    while start < stop and sizes[start] <= head:
        head -= sizes[start]
        start += 1
    while start < stop and sizes[stop - 1] <= tail:
        tail -= sizes[stop - 1]
        stop -= 1
    return range(start, stop)


def _stretches(kept: Sequence[bool]) -> Iterator[range]:
    """The longest ranges without an entry that is to be kept."""
    start = 0
    for at, is_kept in enumerate((*kept, True)):
        if is_kept:
            yield range(start, at)
            start = at + 1
