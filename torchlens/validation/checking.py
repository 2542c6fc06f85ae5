"""All that can be checked of a trace in hand, without the model."""

from __future__ import annotations

from collections.abc import Mapping

from torchlens._trace.reader import TraceReader
from torchlens.validation.findings import Tally
from torchlens.validation.invariants import check_invariants
from torchlens.validation.report import Report
from torchlens.validation.values import check_values


def check_trace(reader: TraceReader, more: Mapping[str, Tally] | None = None) -> Report:
    """Check the values and the record of a trace; `more` are sections checked elsewhere."""
    # values last: a record that breaks its own rules is better told by the rule than by what follows from it
    sections = {"record": check_invariants(reader), "values": check_values(reader), **(more or {})}
    return Report(reader.record.modules[0].type_name, sections, reader.record.unverified)
