"""All that can be checked of a trace in hand, without the model."""

from __future__ import annotations

from torchlens._trace.reader import TraceReader
from torchlens._unseen import modes_off
from torchlens.validation.census import check_census
from torchlens.validation.invariants import check_invariants
from torchlens.validation.report import Report
from torchlens.validation.values import check_values


def check_trace(reader: TraceReader) -> Report:
    """Check the rules of a record and the values of its ops."""
    with modes_off():
        sections = {"record": check_invariants(reader), "values": check_values(reader)}
        if reader.record.census is not None:
            sections["witness"] = check_census(reader)
    return Report(reader.record.modules[0].type_name, sections, reader.record.unverified)
