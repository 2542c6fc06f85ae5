"""How much memory the process took."""

from __future__ import annotations

import resource
import sys

MIB = 2**20


def resident_peak() -> int:
    """Bytes of memory that the process has held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
