"""What a caller gave as a trace."""

from __future__ import annotations

from torchlens._api.trace import Trace
from torchlens._trace.reader import TraceReader
from torchlens.errors import InputError


def reader_of(trace: Trace) -> TraceReader:
    """The reader of a trace; `InputError` for anything else."""
    refuse_others(trace)
    return trace._reader


def refuse_others(given: object) -> None:
    """Raise `InputError` for what is no trace."""
    if not isinstance(given, Trace):
        raise InputError(
            f"this takes a trace, not a {type(given).__name__}; give what tl.trace, tl.load or "
            "`with tl.capture(...) as trace:` gave"
        )
