"""Reads all there is in a trace; what a value's file lacks or has wrong is a typed error, and passed over."""

from __future__ import annotations

from typing import Any

from tests.programs.answers import answers
from torchlens.errors import DamagedFileError


def read_all(trace: Any) -> int:
    """How many questions were answered."""
    count = 0
    try:
        for _ in answers(trace, printed=False):
            count += 1
        _ = trace.memory
    except DamagedFileError:
        pass
    return count
