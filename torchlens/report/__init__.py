"""Text for people: summaries by rich, and `doctor`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchlens.report.doctor_checks import doctor

__all__ = ["doctor"]


def __getattr__(name: str) -> Any:
    if name != "doctor":
        raise AttributeError(f"torchlens.report has no {name!r}; it has doctor")
    return import_module("torchlens.report.doctor_checks").doctor  # which loads torch
