"""What is compared: a plain forward, a mode that only keeps outputs, and traces."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

import torchlens as tl
from cases import Case

PLAIN = "plain forward"
KEEPING = "null mode, outputs kept"
NOTHING = "trace, nothing kept"
UNCHECKED = "trace, unchecked"
FULL = "trace"
WITNESS = "trace with witness"


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


def can_witness() -> bool:
    try:
        tl.options.CaptureOptions(witness=True)
    except TypeError:
        return False
    return True


def always_on_checks() -> list[tuple[type, str]]:
    """The methods by which a trace finds out what it did not see; none in a release without them."""
    try:
        from torchlens._capture.ages import Ages
        from torchlens._capture.session import Session
        from torchlens._capture.threads import ThreadWatch
    except ImportError:
        return []
    watches = [(kind, name) for kind in (Ages, ThreadWatch) for name in ("open", "close")]
    return [*watches, (Session, "_note_changes")]


def trace_without(checks: list[tuple[type, str]], case: Case) -> tuple[Any, list[tuple[str, int]]]:
    """A trace in which the checks do nothing: what they cost is the difference to one with them."""
    with ExitStack() as left_out:
        for kind, name in checks:
            left_out.enter_context(mock.patch.object(kind, name, return_value=None))
        return trace_and_read(case)


def rows_of(case: Case) -> dict[str, Callable[[], object]]:
    rows: dict[str, Callable[[], object]] = {PLAIN: case.forward, KEEPING: lambda: keep_outputs(case)}
    if can_hold_nothing():
        rows[NOTHING] = lambda: trace_and_read(case, save=[])
    if checks := always_on_checks():
        rows[UNCHECKED] = lambda: trace_without(checks, case)
    rows[FULL] = lambda: trace_and_read(case)
    if can_witness():
        options = tl.options.CaptureOptions(witness=True)
        rows[WITNESS] = lambda: trace_and_read(case, capture=options)
    return rows
