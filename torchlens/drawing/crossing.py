"""What flows from one call of a module into a later one."""

from __future__ import annotations

from torchlens.drawing.scene import Box, Leaf, Link


def crosses_calls(link: Link, box: Box) -> bool:
    """Whether some data of a link between leaves in a box leaves one call of it and enters another."""
    if len(box.calls) < 2:
        return False
    calls = frozenset(box.calls)
    for parent, child in link.edges:
        if _call_around(link.source, parent, calls) != _call_around(link.target, child, calls):
            return True
    return False


def _call_around(leaf: Leaf, op: int, calls: frozenset[int]) -> int:
    """Which of some module calls an op of a leaf ran in."""
    reader = leaf.first._reader
    call = reader.rows.call[reader.numbers.rows[op]]
    while call and call not in calls:
        call = reader.record.module_calls[call].parent
    return call
