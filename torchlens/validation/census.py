"""Whether an op of the trace, or a known exception, accounts for every operator that torch dispatched."""

from __future__ import annotations

from torchlens._trace.reader import TraceReader
from torchlens.validation.findings import Finding, Tally


def check_census(reader: TraceReader) -> Tally:
    """Count the operators that are accounted for; those that are not could not be checked."""
    census = reader.record.census
    if census is None:
        return Tally()
    text = "an operator that no op of the trace accounts for"
    left = [Finding(str(entry), text) for entry in census.leftovers]
    return Tally(checked=sum(census.counts.values()), unchecked=left)
