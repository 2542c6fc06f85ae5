"""The lines of code that ops were called at, with their text as it is now."""

from __future__ import annotations

import linecache

from torchlens._keys.chains import Frame


def line_text(frame: Frame) -> str:
    """The text of a frame's line without its indentation; empty where there is none."""
    return linecache.getline(frame.file, frame.line).strip() if frame.line is not None else ""


def frame_text(frame: Frame) -> str:
    """`net.py:12 in Net.forward: x = self.norm(x)`, without what is not known."""
    text = line_text(frame)
    return f"{frame}: {text}" if text else str(frame)
