"""A bar on stderr for work that lasts longer than a second, if stderr is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Timer
from typing import Final, TypeAlias

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

Advance: TypeAlias = Callable[[int], None]
"""Told how much more is done."""
_DELAY: Final = 1.0
"""Seconds."""


@contextmanager
def shown_when_long(
    title: str, total: int | None = None, *, delay: float = _DELAY, console: Console | None = None
) -> Generator[Advance]:
    """Run the body, which may tell how far it got; a bar appears once it has lasted `delay` seconds.

    Without a total the bar says only that something goes on. Nothing of it stays on the screen.
    """
    console = console or Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    progress = Progress(*columns, console=console, transient=True)
    task = progress.add_task(title, total=total)
    if not console.is_terminal:
        yield lambda amount: None
        return
    timer = Timer(delay, progress.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda amount: progress.advance(task, amount)
    finally:
        timer.cancel()
        timer.join()  # it may be about to start the bar
        progress.stop()
