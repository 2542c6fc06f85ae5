"""What a trace amounts to: how it ended, its inputs and outputs, and its totals, in sentences."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torchlens._trace.provenance import find_provenance
from torchlens._trace.reader import TraceReader
from torchlens.report.amounts import quantity
from torchlens.report.failure import FailureReport, report_failure
from torchlens.report.sizes import look_text
from torchlens.report.totals import totals


@dataclass(frozen=True)
class Overview:
    """The facts of a trace as short texts."""

    title: str
    status: str
    failure: FailureReport | None
    """The exception that ended the run."""
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
        failure=report_failure(reader),
        inputs=tuple(_values(reader, record.inputs)),
        outputs=tuple(_values(reader, record.outputs)),
        totals=tuple(totals(reader)),
        warnings=tuple(_warnings(reader)),
    )


def _status(reader: TraceReader) -> str:
    record = reader.record
    calls = len(record.root_calls) if record.is_block else 1
    return f"{'forward' if calls == 1 else quantity(calls, 'forward')}, {record.status}"


def _values(reader: TraceReader, rows: Iterable[int]) -> Iterable[str]:
    for row in rows:
        op = reader.numbers.first[row]
        label = reader.layering.layers[reader.layering.layer_of[op]].label
        seen = reader.values.geometry(reader.tensor(row, 0), row, after=True)
        device = reader.values.device(seen)
        yield f"{label} {look_text(seen)} {device}"


def _warnings(reader: TraceReader) -> Iterable[str]:
    record = reader.record
    yield from (f"unverified {line}" for line in find_provenance(reader).lines())
    yield from record.notes
    unknown = _unknown_spellings(reader)
    if unknown:
        yield f"the order of operands, as in x * 2 and 2 * x, is not known for {quantity(unknown, 'call')}"


def _unknown_spellings(reader: TraceReader) -> int:
    return sum(not reader.is_spelling_known(row) for row in range(len(reader.rows)))
