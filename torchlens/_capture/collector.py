"""Python's cyclic collector, paused for the length of one forward.

Thousands of new records would make it look again and again through all that a program holds, for nothing:
records are no garbage while the model runs. Overlapping captures are counted, so that the last one to end
gives the collector back as the first one found it.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Generator
from contextlib import contextmanager


class _Pauses:
    """How many captures want the collector paused now."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._was_enabled = False

    def begin(self) -> None:
        with self._lock:
            if self._count == 0:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._count += 1

    def end(self) -> None:
        with self._lock:
            self._count -= 1
            if self._count == 0 and self._was_enabled:
                gc.enable()


_pauses = _Pauses()


@contextmanager
def collector_paused() -> Generator[None]:
    """Run the body without the cyclic collector; objects without cycles are freed as always."""
    _pauses.begin()
    try:
        yield
    finally:
        _pauses.end()
