"""Which module calls of two runs are one box in a picture of both."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence

from torchlens._trace.views import Views
from torchlens.comparing.alignment import Alignment
from torchlens.comparing.outline import Outline
from torchlens.comparing.subsequence import refined


def shared_calls(a: Views, b: Views, found: Alignment) -> dict[int, int]:
    """Calls of the second run to those of the first: the aligned ones, and those that hold the same pairs.

    A module put into a sequence shifts the numbers of those behind it, so that they are not aligned by name;
    where all aligned ops of one call are those of the other and no more, the two are one all the same.
    """
    matched = dict(found.calls)
    theirs = _chains(b, [pair.b for pair in found.pairs])
    for span, left in _chains(a, [pair.a for pair in found.pairs]).items():
        if span in theirs:
            matched.update(_matched(a, b, left, theirs[span], matched))
    return {other: one for one, other in matched.items()}


def _chains(views: Views, paired: Sequence[int]) -> Mapping[tuple[int, int], list[int]]:
    """Calls by the pairs in them, as a range of pairs; of nested calls with the same ones the outer first."""
    outline = Outline(views)
    rows = sorted(views.reader.numbers.rows[op] for op in paired)
    chains: dict[tuple[int, int], list[int]] = defaultdict(list)
    for call in range(1, len(outline.items)):
        span = outline.span(~call)
        start, end = bisect_left(rows, span.start), bisect_left(rows, span.stop)
        if start < end:
            chains[start, end].append(call)
    return chains


def _matched(
    a: Views, b: Views, left: Sequence[int], right: Sequence[int], known: Mapping[int, int]
) -> list[tuple[int, int]]:
    """The calls of two chains that are one another: by class between known ones, then in order."""
    place = {call: at for at, call in enumerate(right)}
    anchors = [(at, place[known[call]]) for at, call in enumerate(left) if known.get(call) in place]
    by_class = refined(anchors, _classes(a, left), _classes(b, right))
    pairs = refined(by_class, [True] * len(left), [True] * len(right))
    return [(left[at], right[there]) for at, there in pairs]


def _classes(views: Views, calls: Sequence[int]) -> list[str]:
    record = views.reader.record
    return [record.modules[record.module_calls[call].module].type_name for call in calls]
