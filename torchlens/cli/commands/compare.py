"""`torchlens compare`."""

from __future__ import annotations


def compare() -> None:
    """Not yet."""
