"""Bars come on a terminal only, and only for work that lasts."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from torchlens.cli.progress import shown_when_long


def shown(seconds: float, *, terminal: bool, delay: float = 0.05) -> str:
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=60)
    with shown_when_long("reading run.tlens", 10, delay=delay, console=console) as advance:
        advance(4)
        time.sleep(seconds)
        advance(6)
    return file.getvalue()


def test_long_work_on_a_terminal_has_a_bar() -> None:
    text = shown(0.4, terminal=True)
    assert "reading run.tlens" in text
    assert text.endswith("\x1b[2K")  # the line is erased


@pytest.mark.parametrize(("seconds", "terminal"), [(0.0, True), (0.2, False)], ids=["short", "no terminal"])
def test_otherwise_there_is_none(seconds: float, terminal: bool) -> None:
    assert "reading" not in shown(seconds, terminal=terminal, delay=0.05 if seconds else 5)


def test_the_bar_ends_with_an_exception() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=60)

    def fails() -> None:
        time.sleep(0.2)
        raise ValueError("deliberate")

    with pytest.raises(ValueError, match="deliberate"), shown_when_long("x", delay=0.01, console=console):
        fails()
    before = file.getvalue()
    time.sleep(0.2)
    assert file.getvalue() == before
