"""The captures that are measured, each of them built or not, and all rows of a case."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import torchlens as tl
from cases import Case
from probes import always_on_checks, options_have, takes
from references import references_of
from timing import Work

FULL = "trace"
UNCHECKED = "trace, unchecked"
WITNESS = "trace with witness"
ONE = "trace, one module kept"
NOTHING = "trace, nothing kept"
DISK = "trace, all to disk"
RECORD = "record, nothing kept"
RECORD_ONE = "record, one module kept"
STOPPED = "record, nothing kept, to 1/4"
STOPPED_READ = "record, read as trace, to 1/4"
PLUCK = "pluck at 1/4"

NOT_BUILT = "not available"

Labels = list[tuple[str, int]]


def read(trace: Any) -> tuple[Any, Labels]:
    return trace, [(layer.layer_label, layer.num_passes) for layer in trace.layers]


def trace_and_read(case: Case, **options: Any) -> tuple[Any, Labels]:
    return read(tl.trace(case.model, case.inputs, **options))


def trace_without(checks: list[tuple[type, str]], case: Case) -> tuple[Any, Labels]:
    """A trace in which the checks do nothing: what they cost is the difference to one with them."""
    with ExitStack() as left_out:
        for kind, name in checks:
            left_out.enter_context(mock.patch.object(kind, name, return_value=None))
        return trace_and_read(case)


def trace_to_disk(case: Case) -> tuple[Any, Any]:
    """The directory goes when the result does, after the clock has stopped."""
    directory = tempfile.TemporaryDirectory(prefix="trace-to-disk-")
    traced = trace_and_read(case, storage=tl.to_disk(Path(directory.name) / "trace"))
    return traced, directory


def traces_of(case: Case) -> dict[str, Work | str]:
    rows: dict[str, Work | str] = {
        FULL: lambda: trace_and_read(case),
        UNCHECKED: NOT_BUILT,
        WITNESS: NOT_BUILT,
        ONE: NOT_BUILT,
        NOTHING: NOT_BUILT,
        DISK: NOT_BUILT,
    }
    if checks := always_on_checks():
        rows[UNCHECKED] = lambda: trace_without(checks, case)
    if options_have("witness"):
        options = tl.options.CaptureOptions(witness=True)
        rows[WITNESS] = lambda: trace_and_read(case, capture=options)
    if takes("trace", "save"):
        rows[ONE] = lambda: trace_and_read(case, save=[case.middle])
        rows[NOTHING] = lambda: trace_and_read(case, save=[])
    if takes("trace", "storage") and takes("to_disk"):
        rows[DISK] = lambda: trace_to_disk(case)
    return rows


def recordings_of(case: Case) -> dict[str, Work | str]:
    """A recording is not read unless the row says so."""
    rows: dict[str, Work | str] = dict.fromkeys((RECORD, RECORD_ONE, STOPPED, STOPPED_READ, PLUCK), NOT_BUILT)
    model, inputs, quarter = case.model, case.inputs, case.quarter
    if takes("record", "save"):
        rows[RECORD] = lambda: tl.record(model, inputs)
        rows[RECORD_ONE] = lambda: tl.record(model, inputs, save=[case.middle])
    if takes("record", "stop_after"):
        rows[STOPPED] = lambda: tl.record(model, inputs, stop_after=quarter)
        rows[STOPPED_READ] = lambda: read(tl.record(model, inputs, stop_after=quarter).to_trace())
    if takes("pluck"):
        rows[PLUCK] = lambda: tl.pluck(model, inputs, quarter)
    return rows


def rows_of(case: Case) -> dict[str, Work | str]:
    return {**references_of(case), **traces_of(case), **recordings_of(case)}
