"""The endings of paths that a picture can be written to."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from torchlens.cli.ending import UNUSABLE, stop

PAGES: Final = (".html", ".htm")
ENDINGS: Final = (".svg", ".png", ".pdf", ".dot", ".gv", *PAGES)
"""Those that `torchlens.drawing` knows, which loads torch and so is not asked before a command runs."""


def refuse_ending(output: str) -> None:
    """Stop for a path that nothing can be drawn to, before anything runs."""
    if Path(output).suffix.lower() not in ENDINGS:
        stop(f"{output!r} ends in no form of a picture; it is to end in {', '.join(ENDINGS)}", UNUSABLE)
