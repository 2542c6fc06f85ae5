"""Rows of work, run in turn. Needs the standard library only."""

from __future__ import annotations

import gc
import resource
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


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

    def take(self, work: Callable[[], object]) -> None:
        """Run once and measure. What the work returns is freed after the clock has stopped."""
        gc.collect()
        faults, start = minor_faults(), time.perf_counter()
        result = work()
        elapsed, faulted = time.perf_counter() - start, minor_faults() - faults
        self.milliseconds.append(elapsed * 1e3)
        self.page_faults.append(faulted)
        del result


def minor_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def in_turn(rows: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, Samples]:
    """A B C A B C ..., so that a slow while of the machine falls on all rows; the first round is dropped."""
    samples = {name: Samples() for name in rows}
    for turn in range(repeats + 1):
        for name, work in rows.items():
            (samples[name] if turn else Samples()).take(work)
    return samples
