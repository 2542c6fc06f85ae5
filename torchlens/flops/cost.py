"""What a call costs, or why that is not known."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final


@dataclass(frozen=True, slots=True)
class Cost:
    """Operations of one call; `flops` and `macs` are None exactly when `reason` says why they are not known.

    One multiply-add is 2 FLOPs and 1 MAC. Only matrix products, convolutions, recurrent layers and attention
    have MACs: elementwise operations and reductions have 0. A complex number counts as one element.
    """

    flops: int | None
    macs: int | None
    reason: str | None


class UncountedError(Exception):
    """Carries the reason why a call has no count from where it is found to where the cost is made."""


FREE: Final = Cost(0, 0, None)
"""Of a call that moves or sets elements and computes none; told by identity from a count that came out 0."""


def product_cost(flops: int) -> Cost:
    """Cost of multiply-adds."""
    return _shared(flops, flops // 2)


def element_cost(elements: int) -> Cost:
    """Cost of one FLOP an element."""
    return _shared(elements, 0)


def _shared(flops: int, macs: int) -> Cost:
    # a size may be a symbol, which only looks like a number
    return _known(flops, macs) if type(flops) is int else Cost(flops, macs, None)


@lru_cache(maxsize=4096)
def _known(flops: int, macs: int) -> Cost:
    """One object for all calls that cost the same: a trace has few different costs and many calls."""
    return Cost(flops, macs, None)


def unknown(reason: str) -> Cost:
    """No count, for this reason: one sentence."""
    return Cost(None, None, reason)
