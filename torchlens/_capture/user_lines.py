"""The lines of the user's own code that an exception passed through."""

from __future__ import annotations

import linecache
import os
import sysconfig
from collections.abc import Iterable, Iterator
from types import FrameType, TracebackType
from typing import Final

from torchlens._records import SourceLine

_OF_PYTHON: Final = sysconfig.get_paths()["stdlib"] + os.sep
_INSTALLED: Final = ("site-packages", "dist-packages")
"""Folders in that of Python's own modules, for those of others."""


def places_of(found: TracebackType | None) -> Iterator[TracebackType]:
    """Where an exception passed through, outermost first."""
    while found is not None:
        yield found
        found = found.tb_next


def user_lines(places: Iterable[TracebackType], most: int) -> list[SourceLine]:
    """The innermost lines that are neither torch's, nor ours, nor Python's own, outermost first."""
    shown = [place for place in places if not _is_hidden(place.tb_frame)]
    return [_line(place) for place in shown[-most:]]


def _line(place: TracebackType) -> SourceLine:
    frame, line = place.tb_frame, place.tb_lineno
    file = frame.f_code.co_filename
    text = linecache.getline(file, line, frame.f_globals).strip()
    return SourceLine(file, line, frame.f_code.co_name, text)


def _is_hidden(frame: FrameType) -> bool:
    name = frame.f_globals.get("__name__")
    if isinstance(name, str) and name.partition(".")[0] in ("torch", "torchlens"):
        return True
    file = frame.f_code.co_filename
    inside = file.removeprefix(_OF_PYTHON)
    return inside != file and not inside.startswith(_INSTALLED)
