"""How a command ends: exit codes, and one line on stderr."""

from __future__ import annotations

from typing import Final, NoReturn

import typer

NOT_WELL: Final = 1
"""The model raised, the runs differ, or something is refused."""
UNUSABLE: Final = 2
"""The request cannot be met: nothing was found out."""


def stop(message: str, code: int) -> NoReturn:
    """End with one line on stderr."""
    typer.echo(f"torchlens: {' '.join(message.split())}", err=True)
    raise typer.Exit(code)
