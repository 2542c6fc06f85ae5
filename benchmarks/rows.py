"""What is compared: a plain forward, a mode that only keeps outputs, and traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

import torchlens as tl
from cases import Case

PLAIN = "plain forward"
KEEPING = "null mode, outputs kept"
NOTHING = "trace, nothing kept"
FULL = "trace"


class KeepOutputs(TorchFunctionMode):
    """The least that any recorder does: it is asked for each call and holds what came out."""

    def __init__(self) -> None:
        super().__init__()
        self.outputs: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        self.outputs.append(output)
        return output


def keep_outputs(case: Case) -> list[Any]:
    with KeepOutputs() as mode:
        mode.outputs.append(case.forward())
    return mode.outputs


def count_calls(case: Case) -> int:
    """Torch calls in a forward, attribute reads included: each of them costs a mode something."""
    return len(keep_outputs(case)) - 1


def trace_and_read(case: Case, **options: Any) -> tuple[Any, list[tuple[str, int]]]:
    trace = tl.trace(case.model, case.inputs, **options)
    return trace, [(layer.layer_label, layer.num_passes) for layer in trace.layers]


def can_hold_nothing() -> bool:
    try:
        tl.trace(torch.nn.Identity(), torch.ones(1), save=[])
    except (TypeError, NotImplementedError, tl.errors.TorchLensError):
        return False
    return True


def rows_of(case: Case) -> dict[str, Callable[[], object]]:
    rows: dict[str, Callable[[], object]] = {PLAIN: case.forward, KEEPING: lambda: keep_outputs(case)}
    if can_hold_nothing():
        rows[NOTHING] = lambda: trace_and_read(case, save=[])
    rows[FULL] = lambda: trace_and_read(case)
    return rows
