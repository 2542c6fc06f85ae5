"""Where differences start: the layers that differ although all that they read is as expected."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set


def find_starts(
    differing: Sequence[int], parents: Mapping[int, Collection[int]], uncertain: Set[int]
) -> list[list[int]]:
    """The layers, by number in capture order, at which differences start: each alone, or those of a loop.

    Layers that read one another in a loop can't be told apart where statistics are of all their passes. Those
    that are `uncertain`, having read what was not compared, are left out.
    """
    above = {at: {each for each in parents[at] if each != at}.intersection(differing) for at in differing}
    readers: dict[int, list[int]] = {at: [] for at in differing}
    for at, read in above.items():
        for parent in read:
            readers[parent].append(at)
    first = [at for at in differing if not above[at]]
    starts = [[at] for at in first if at not in uncertain]
    explained = _add_reached(set(), first, readers)
    for at in _above_others([at for at in differing if at not in explained], readers):
        if at not in explained:
            loop = _add_reached(set(), [at], above)
            if loop.isdisjoint(uncertain):
                starts.append(sorted(loop))
            _add_reached(explained, loop, readers)
    return starts


def _above_others(layers: Sequence[int], readers: Mapping[int, Iterable[int]]) -> Sequence[int]:
    """Layers from which all of these are reached: in loops which only the layers before them reach."""
    seen: set[int] = set()
    roots: list[int] = []
    for at in layers:
        if at not in seen:
            roots.append(at)
            _add_reached(seen, [at], readers)
    return roots[::-1]  # what an earlier one reaches was seen when a later one began


def _add_reached(
    found: set[int], beginnings: Iterable[int], following: Mapping[int, Iterable[int]]
) -> set[int]:
    """Add what is reached from the beginnings, going no further where it was found before."""
    waiting = [at for at in beginnings if at not in found]
    while waiting:
        at = waiting.pop()
        if at not in found:
            found.add(at)
            waiting += following[at]
    return found
