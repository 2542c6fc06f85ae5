"""One row of the million case at one size, in a process of its own; prints JSON.

    python benchmarks/million_run.py --row "trace, nothing kept" --ops 300000 --repeats 1

Memory is what the process holds more, as the system counts it: Python's and C++'s, kept tensors included.
Times are of the processor, the medians of runs in turn.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

import torchlens as tl
from cases import Case, build
from probes import takes
from rows import FULL, NOTHING, RECORD, read
from timing import Work

PAGE = os.sysconf("SC_PAGE_SIZE")
WARM_UP = 1_000


@dataclass
class Long:
    ops: int
    plain_microseconds: float
    """For an operation, as the other two times."""
    microseconds: float
    read_microseconds: float
    """Reading layers and labels."""
    record_bytes: int
    read_bytes: int
    """With layers and labels read."""
    peak_bytes: int
    """The most during the run and the reading."""


LONG_RUNS: dict[str, Callable[[Case], Any]] = {
    NOTHING: lambda case: tl.trace(case.model, case.inputs, save=[]),
    RECORD: lambda case: tl.record(case.model, case.inputs),
    FULL: lambda case: tl.trace(case.model, case.inputs),
}


def available(row: str) -> bool:
    return {NOTHING: takes("trace", "save"), RECORD: takes("record", "save"), FULL: True}[row]


def layers_of(row: str, result: Any) -> Any:
    return read(result.to_trace() if row == RECORD else result)


def resident() -> int:
    """Bytes that the process holds; what was freed is handed back to the system first, where libc can."""
    gc.collect()
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def peak_resident() -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found, "the system does not tell the peak of a process"
    return int(found[1]) * 1024


def memory_of(row: str, case: Case) -> tuple[int, int, int]:
    before = resident()
    forget_peak()
    result = LONG_RUNS[row](case)
    recorded = resident() - before
    layers = layers_of(row, result)
    peak = peak_resident() - before
    held = resident() - before
    del layers, result
    return recorded, held, peak


def timed(work: Work) -> tuple[Any, float]:
    """The result, and the microseconds of the processor."""
    gc.collect()
    start = time.process_time()
    result = work()
    return result, (time.process_time() - start) * 1e6


def times_of(row: str, case: Case, repeats: int) -> tuple[float, float, float]:
    """Medians for the whole run: plain, captured, read."""
    plain, captured, reading = [], [], []
    for _ in range(repeats):
        plain.append(timed(case.forward)[1])
        result, taken = timed(lambda: LONG_RUNS[row](case))
        captured.append(taken)
        reading.append(timed(lambda result=result: layers_of(row, result))[1])
        del result
    return median(plain), median(captured), median(reading)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--row", required=True, choices=LONG_RUNS)
    parser.add_argument("--ops", type=int, required=True)
    parser.add_argument("--repeats", type=int, required=True)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    times_of(options.row, build("tiny", WARM_UP), 1)
    case = build("tiny", options.ops)
    recorded, held, peak = memory_of(options.row, case)
    plain, captured, reading = (time / options.ops for time in times_of(options.row, case, options.repeats))
    print(json.dumps(asdict(Long(options.ops, plain, captured, reading, recorded, held, peak))))


if __name__ == "__main__":
    main()
