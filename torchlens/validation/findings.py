"""What a check found, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found, and about what."""

    about: str
    """A label or address of the trace."""
    text: str
    reason: str | None = None
    """The text without what concerns this one thing alone; None where that is all of it."""


@dataclass(slots=True)
class Tally:
    """What came of checking many things of one sort."""

    checked: int = 0
    """How many were checked and held."""
    failed: list[Finding] = field(default_factory=list[Finding])
    unchecked: list[Finding] = field(default_factory=list[Finding])
    """What could not be checked, each with the reason."""
    advice: list[Finding] = field(default_factory=list[Finding])
    """What is worth a look and may well be right."""
