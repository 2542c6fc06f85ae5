"""Text for people and data for programs: summaries by rich, one op in numbers, and `doctor`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from torchlens.report.doctor_checks import doctor
    from torchlens.report.inspection import inspect
    from torchlens.report.run_figures import figures

__all__ = ["doctor", "figures", "inspect"]

_MODULES: Final = {"doctor": "doctor_checks", "figures": "run_figures", "inspect": "inspection"}
"""Each loads torch."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"torchlens.report has no {name!r}; it has {', '.join(_MODULES)}")
    return getattr(import_module(f"torchlens.report.{_MODULES[name]}"), name)
