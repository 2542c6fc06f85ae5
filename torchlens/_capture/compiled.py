"""Compiled code runs eagerly during a capture, and keeps its caches.

Torch can only do this for the whole process, and not last-in-first-out; overlapping captures are counted, so
that the last one to end gives back what the first one found. Nothing is done while dynamo is not loaded:
loading it takes a second, and without it nothing is compiled.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch


class _EagerStance:
    """How many captures want compiled code to run eagerly now."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._stance: Any = None

    def begin(self) -> bool:
        set_stance = getattr(torch.compiler, "set_stance", None)  # torch 2.6 and later
        if "torch._dynamo" not in sys.modules or set_stance is None:
            return False
        with self._lock:
            if self._count == 0:
                self._stance = set_stance("force_eager")
            self._count += 1
        return True

    def end(self) -> None:
        with self._lock:
            self._count -= 1
            if self._count == 0:
                self._stance.__exit__(None, None, None)
                self._stance = None


_eager = _EagerStance()


@contextmanager
def compiled_code_eager() -> Generator[None]:
    """Run the body with `torch.compile`d code running as plain Python."""
    begun = _eager.begin()
    try:
        yield
    finally:
        if begun:
            _eager.end()
