"""The lines of code that ops were called at, with their text as it is now."""

from __future__ import annotations

import linecache

from torchlens._keys.chains import Frame
from torchlens._records import SourceLine


def source_line(frame: Frame) -> SourceLine:
    """A frame as plain data, with the text of its line as it is now; line 0 where it is not known."""
    line = frame.line or 0
    return SourceLine(frame.file, line, frame.function, linecache.getline(frame.file, line).strip())


def line_text(line: SourceLine) -> str:
    """`net.py:12 in Net.forward: x = self.norm(x)`, without what is not known."""
    place = str(Frame(line.file, line.function, line.line or None, None, None, None))
    return f"{place}: {line.text}" if line.text else place


def frame_text(frame: Frame) -> str:
    """The same of a frame."""
    return line_text(source_line(frame))
