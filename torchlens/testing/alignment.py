"""Which layer of one description is which of another: by type and module, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torchlens.comparing.subsequence import common_subsequence, gaps, refined
from torchlens.testing.description import LayerLine


@dataclass(frozen=True, slots=True)
class Pair:
    """A layer of the old description and what is in its place in the new one; None where nothing is."""

    old: int | None
    new: int | None


def align(old: Sequence[LayerLine], new: Sequence[LayerLine]) -> list[Pair]:
    """Pairs in the order of both. Labels are no help: one new `relu` renumbers all that follow.

    What neither module and type nor type alone aligns is replaced one by one if there is as much on both
    sides, otherwise gone or new.
    """
    found = common_subsequence(
        [(line.type, line.module) for line in old], [(line.type, line.module) for line in new]
    )
    found = refined(found, [line.type for line in old], [line.type for line in new])
    between = gaps(found, range(len(old)), range(len(new)))
    aligned: list[Pair] = []
    for at, (left, right) in enumerate(between):
        aligned += _unaligned(left, right)
        aligned += [Pair(*both) for both in found[at : at + 1]]
    return aligned


def _unaligned(left: Sequence[int], right: Sequence[int]) -> Iterator[Pair]:
    if len(left) == len(right):
        yield from (Pair(*both) for both in zip(left, right))
    else:
        yield from (Pair(at, None) for at in left)
        yield from (Pair(None, at) for at in right)
