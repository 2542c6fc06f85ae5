"""Which places in the code of two runs are one place, although a function may have moved in its file."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from torchlens.comparing.outline import Outline, Site, Spot

_MOST_SHIFTS: Final = 20_000
"""Pairs of lines of one function beyond which only the obvious shifts are tried."""

Function: TypeAlias = tuple[str, str]
"""(file, name)."""


class _Call(NamedTuple):
    """What is called at a place, whichever line it stands on."""

    callee: str
    column: int
    end_column: int


@dataclass(slots=True)
class _Text:
    """What a run shows of the text of one function."""

    lines_of: dict[_Call, set[int]] = field(default_factory=lambda: defaultdict(set))
    calls_on: dict[int, set[_Call]] = field(default_factory=lambda: defaultdict(set))


class Places:
    """Numbers for the places of two runs; rows of the same place have the same number.

    A place is the frames of a call site: file name, function, line, columns. The lines of a function are
    counted from where it stands: of all shifts between the runs the one under which most of its calls
    coincide. A function whose lines cannot be those of one text is left out, with all places reached through
    it: where on a line the runs call different things in the same columns and nothing in common, or where
    both have a call left over that is the same but for its line.
    """

    def __init__(self, left: Outline, right: Outline) -> None:
        ours, theirs = _texts(left), _texts(right)
        shared = ours.keys() & theirs.keys()
        shifts = {function: _shift(ours[function], theirs[function]) for function in shared}
        self._numbers: dict[Site, int] = {}
        self.left = self._numbered(left, shifts)
        """For each row its place; None where it is not to be trusted."""
        self.right = self._numbered(right, {function: shift and 0 for function, shift in shifts.items()})

    def _numbered(self, outline: Outline, shifts: Mapping[Function, int | None]) -> list[int | None]:
        known: dict[int, int | None] = {}
        found: list[int | None] = []
        for site in outline.sites:
            key = id(site)
            if key not in known:
                moved = _moved(site, shifts)
                number = None if moved is None else self._numbers.setdefault(moved, len(self._numbers))
                known[key] = number
            found.append(known[key])
        return found


def _moved(site: Site, shifts: Mapping[Function, int | None]) -> Site | None:
    spots: list[Spot] = []
    for spot in site.spots:
        shift = shifts.get((spot.file, spot.function))
        if shift is None:
            return None
        spots.append(spot._replace(line=spot.line + shift))
    return Site(tuple(spots), site.func_name)


def _texts(outline: Outline) -> Mapping[Function, _Text]:
    texts: dict[Function, _Text] = defaultdict(_Text)
    sites = {id(site): site for site in outline.sites}  # by identity: a site is long to hash
    for spot, callee in {pair for site in sites.values() for pair in _calls(site)}:
        text, call = texts[spot.file, spot.function], _Call(callee, spot.column, spot.end_column)
        text.lines_of[call].add(spot.line)
        text.calls_on[spot.line].add(call)
    return texts


def _calls(site: Site) -> Iterable[tuple[Spot, str]]:
    """Each frame with the name of what it called."""
    return zip(site.spots, [*(inner.function for inner in site.spots[1:]), site.func_name])


def _shift(ours: _Text, theirs: _Text) -> int | None:
    """How many lines further down a function stands in the second run; None if the texts differ."""
    votes = _votes(ours, theirs)
    if not votes:
        return None
    most = max(votes.values())
    found = min((shift for shift, count in votes.items() if count == most), key=lambda s: (abs(s), s))
    return found if _is_one_text(ours, theirs, found) else None


def _votes(ours: _Text, theirs: _Text) -> Counter[int]:
    """For each shift how many calls coincide under it."""
    calls = ours.lines_of.keys() & theirs.lines_of.keys()
    shared = [(ours.lines_of[call], theirs.lines_of[call]) for call in calls]
    votes: Counter[int] = Counter()
    if sum(len(left) * len(right) for left, right in shared) <= _MOST_SHIFTS:
        for left, right in shared:
            votes.update(there - here for here in left for there in right)
        return votes
    ends = {0} | {end(theirs.calls_on) - end(ours.calls_on) for end in (min, max)}
    votes.update({shift: sum(len(_shifted(left, shift) & right) for left, right in shared) for shift in ends})
    return votes


def _is_one_text(ours: _Text, theirs: _Text, shift: int) -> bool:
    for line, calls in ours.calls_on.items():
        others = theirs.calls_on.get(line + shift, set())
        if calls.isdisjoint(others) and any(_overlap(one, other) for one in calls for other in others):
            return False
    for call, lines in ours.lines_of.items():
        left, right = _shifted(lines, shift), theirs.lines_of.get(call, set())
        if left - right and right - left:
            return False
    return True


def _overlap(one: _Call, other: _Call) -> bool:
    """Whether two calls of one line share columns, as the two arms of `a if flag else b` do not."""
    return (one.column < other.end_column and other.column < one.end_column) or one.column < 0


def _shifted(lines: set[int], shift: int) -> set[int]:
    return {line + shift for line in lines}
