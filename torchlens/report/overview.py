"""What a trace amounts to: how it ended, its inputs and outputs, and its totals, in sentences."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from torchlens._trace.provenance import find_provenance
from torchlens._trace.reader import TraceReader
from torchlens.report.amounts import quantity, shape_text
from torchlens.report.sizes import shape_of
from torchlens.report.totals import totals

_OURS_OR_TORCHS = re.compile(r"[\\/](torchlens|site-packages[\\/]torch)[\\/]")
_FRAME = re.compile(
    r'^  File "(?P<file>.+)", line (?P<line>\d+), in (?P<name>.+)\n(?:    (?P<text>.+)\n)?', re.M
)


@dataclass(frozen=True)
class Overview:
    """The facts of a trace as short texts."""

    title: str
    status: str
    failure: tuple[str, ...]
    """What was raised and where, a line each; empty when nothing was."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    totals: tuple[tuple[str, str], ...]
    """Name and text of each total."""
    warnings: tuple[str, ...]
    """What makes the trace less than whole, and the notes of the capture."""


def survey(reader: TraceReader) -> Overview:
    """Read the facts of a trace."""
    record = reader.record
    return Overview(
        title=record.modules[0].type_name,
        status=_status(reader),
        failure=tuple(_failure(reader)),
        inputs=tuple(_values(reader, record.inputs)),
        outputs=tuple(_values(reader, record.outputs)),
        totals=tuple(totals(reader)),
        warnings=tuple(_warnings(reader)),
    )


def _status(reader: TraceReader) -> str:
    record = reader.record
    calls = len(record.root_calls) if record.is_block else 1
    return f"{'forward' if calls == 1 else quantity(calls, 'forward')}, {record.status}"


def _failure(reader: TraceReader) -> Iterable[str]:
    failure = reader.record.failure
    if failure is None:
        return
    first = failure.message.strip().partition("\n")[0]
    yield f"{failure.type_name}: {first}" if first else failure.type_name
    running = [at for at, call in enumerate(reader.record.module_calls) if at and call.end is None]
    if running:
        module = reader.record.modules[reader.record.module_calls[running[-1]].module]
        call = reader.call_labels[running[-1]]
        yield f"in {module.addresses[0] or 'the root'} ({module.type_name}), call {call}"
    place = _place(failure.traceback)
    if place:
        yield f"at {place}"


def _place(traceback: str) -> str | None:
    """The innermost line of the traceback that is neither torch's nor ours."""
    frames = [m for m in _FRAME.finditer(traceback) if not _OURS_OR_TORCHS.search(m["file"])]
    if not frames:
        return None
    last = frames[-1]
    return f"{_relative(last['file'])}:{last['line']} in {last['name']}" + (
        f": {last['text']}" if last["text"] else ""
    )


def _relative(file: str) -> str:
    """The path as it would be typed from here."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def _values(reader: TraceReader, rows: Iterable[int]) -> Iterable[str]:
    for row in rows:
        op = reader.numbers.first[row]
        label = reader.layering.layers[reader.layering.layer_of[op]].label
        seen = reader.values.geometry(reader.tensor(row, 0), row, after=True)
        device = reader.values.device(seen)
        yield f"{label} {shape_text(shape_of(seen))} {str(seen.dtype).removeprefix('torch.')} {device}"


def _warnings(reader: TraceReader) -> Iterable[str]:
    record = reader.record
    yield from (f"unverified {line}" for line in find_provenance(reader).lines())
    yield from record.notes
    unknown = _unknown_spellings(reader)
    if unknown:
        yield f"the order of operands, as in x * 2 and 2 * x, is not known for {quantity(unknown, 'call')}"


def _unknown_spellings(reader: TraceReader) -> int:
    return sum(not reader.is_spelling_known(row) for row in range(len(reader.rows)))
