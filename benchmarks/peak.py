"""The most memory a run holds at once, as torch's CPU allocator counts it; never on the clock.

Counted are the tensors that the run makes, what autograd keeps, copies that a capture makes, and scratch
memory inside operators. Parameters and inputs were there before. What other threads take is not seen.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torch.utils._pytree import tree_leaves

import torchlens as tl
from cases import Case
from probes import takes
from references import PLAIN, forward_until
from rows import FULL, NOTHING, ONE
from timing import Work


def peak_bytes(work: Work) -> int:
    work()  # what is allocated once, at the first run, is not the run's
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        result = work()
        del result  # freed later, it would still stand in the profiler's books at the next run
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "events.json"
        profiled.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    allocations = [event for event in events if event["name"] == "[memory]"]
    steps = [event["args"] for event in sorted(allocations, key=lambda event: event["ts"])]
    if not steps:
        return 0
    before = steps[0]["Total Allocated"] - steps[0]["Bytes"]
    return max(step["Total Allocated"] for step in steps) - before


@dataclass
class Peaks:
    """Bytes by row, None where it is not built."""

    with_gradients: dict[str, int | None]
    without_gradients: dict[str, int | None]
    middle: str
    middle_bytes: int
    """Of the output of the one module that is kept."""


def runs_of(case: Case) -> dict[str, Work | None]:
    saves = takes("trace", "save")
    return {
        PLAIN: case.forward,
        NOTHING: (lambda: tl.trace(case.model, case.inputs, save=[])) if saves else None,
        ONE: (lambda: tl.trace(case.model, case.inputs, save=[case.middle])) if saves else None,
        FULL: lambda: tl.trace(case.model, case.inputs),
    }


def measure_peaks(case: Case) -> Peaks:
    def measure(grad: Callable[[], Any]) -> dict[str, int | None]:
        with grad():
            return {name: work and peak_bytes(work) for name, work in runs_of(case).items()}

    output = forward_until(case, case.middle)
    kept = sum(leaf.nbytes for leaf in tree_leaves(output) if isinstance(leaf, Tensor))
    return Peaks(measure(torch.enable_grad), measure(torch.no_grad), case.middle, kept)
