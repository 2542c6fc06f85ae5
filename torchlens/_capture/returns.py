"""Learning what a running function returns, by Python's profiling hook or else its tracing hook."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


class ReturnWatch:
    """Waits for one frame to return, and puts everything back when it has.

    A profiler written in Python is called all the while. One written in C can be neither called nor put back;
    then the frame is traced, unless a debugger is.
    """

    def __init__(self, frame: FrameType, returned: Callable[[Any], None]) -> None:
        self._frame = frame
        self._returned = returned
        self._profiler: Any = sys.getprofile()
        self._traced = not (self._profiler is None or callable(self._profiler))
        self.watching = not self._traced or sys.gettrace() is None
        """False where neither hook is free: the return will not be told."""

    def begin(self) -> None:
        if not self.watching:
            return
        if not self._traced:
            sys.setprofile(self._profile)
            return
        self._frame.f_trace_lines = False
        self._frame.f_trace = self._trace
        sys.settrace(_no_frame)

    def end(self) -> None:
        """Stop, as when the frame has returned."""
        if not self.watching:
            return
        self.watching = False
        if not self._traced:
            sys.setprofile(self._profiler)
            return
        sys.settrace(None)
        self._frame.f_trace = None
        self._frame.f_trace_lines = True

    def _profile(self, frame: FrameType, event: str, arg: Any) -> None:
        if self._profiler is not None:
            self._profiler(frame, event, arg)
        if event == "return" and frame is self._frame:
            self.end()
            self._returned(arg)

    def _trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "return":
            self.end()
            self._returned(arg)
        return self._trace


def _no_frame(frame: FrameType, event: str, arg: Any) -> None:
    """Of the frames entered from now on, none is traced."""
