"""Rows of work, run in turn. Needs the standard library only."""

from __future__ import annotations

import gc
import resource
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Work: TypeAlias = Callable[[], object]


@dataclass
class Samples:
    milliseconds: list[float] = field(default_factory=list)
    page_faults: list[int] = field(default_factory=list)

    @property
    def median_ms(self) -> float:
        return statistics.median(self.milliseconds)

    @property
    def median_faults(self) -> float:
        return statistics.median(self.page_faults)

    def take(self, work: Work) -> None:
        """Run once and measure. What the work returns is freed after the clock has stopped."""
        gc.collect()
        faults, start = minor_faults(), time.perf_counter()
        result = work()
        elapsed, faulted = time.perf_counter() - start, minor_faults() - faults
        self.milliseconds.append(elapsed * 1e3)
        self.page_faults.append(faulted)
        del result


Rows: TypeAlias = dict[str, Samples | str]
"""By name, in the order shown; a text says why a row was not measured."""


def minor_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def in_turn(rows: Mapping[str, Work | str], repeats: int) -> Rows:
    """A B C A B C ..., so that a slow while of the machine falls on all rows; the first round is dropped."""
    samples: Rows = {name: work if isinstance(work, str) else Samples() for name, work in rows.items()}
    for turn in range(repeats + 1):
        for name, work in rows.items():
            kept = samples[name]
            if not isinstance(work, str) and not isinstance(kept, str):
                (kept if turn else Samples()).take(work)
    return samples


def measured(rows: Rows, name: str) -> Samples | None:
    found = rows.get(name)
    return found if isinstance(found, Samples) else None


def ratio(rows: Rows, name: str, to: str) -> float | None:
    """Of two medians; None where one of the rows was not measured."""
    one, other = measured(rows, name), measured(rows, to)
    return one.median_ms / other.median_ms if one and other else None
