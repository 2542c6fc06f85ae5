"""Links: the edges of a run's graph, between the leaves that its ops stand in."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from operator import attrgetter

from torchlens._trace.views import Views
from torchlens._values.ghost import Recorded
from torchlens._values.lineage import HOST, positions
from torchlens.drawing.scene import Leaf, Link
from torchlens.report.sizes import shape_of


def links_between(views: Views, leaf_of: Mapping[int, Leaf]) -> list[Link]:
    """The links, by the op that reads first: one from leaf to leaf, and one for what goes to later passes.

    `leaf_of` is by op.
    """
    reader = views.reader
    found: dict[tuple[int, int, bool], Link] = {}
    for op, parents in enumerate(reader.lineage.parents):
        row = reader.numbers.rows[op]
        arguments = dict(positions(reader.rows.args[row], reader.rows.kwargs[row]))
        target = leaf_of[op]
        for position, parent in parents:
            source = leaf_of[parent]
            later = _ran_between(source, parent, op) and _ran_between(target, parent, op)
            key = source.index, target.index, later
            link = found.get(key) or found.setdefault(key, Link(source, target, later=later))
            link.edges[parent, op] = None
            link.positions[position] = None
            link.shape.add(_shape(views, arguments.get(position), position, parent, row))
    return list(found.values())


def _ran_between(leaf: Leaf, parent: int, child: int) -> bool:
    """Whether a leaf ran between two ops, by index."""
    if len(leaf.ops) == 1:
        return False
    at = bisect_right(leaf.ops, parent, key=attrgetter("index"))
    return at < len(leaf.ops) and leaf.ops[at].index < child


def _shape(
    views: Views, argument: Recorded | None, position: str, parent: int, row: int
) -> tuple[int, ...] | None:
    """Of the argument as it was read; of what came through the host, as the parent gave it."""
    if argument is None or position == HOST:
        return shape_of(views.op(parent)._seen)
    return shape_of(views.reader.values.geometry(argument, row, after=False))
