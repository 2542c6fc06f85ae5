"""Which captures this torchlens can make, by signature: so what is not built is told from what fails."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from importlib import import_module
from importlib.util import find_spec

import torchlens as tl

CHECKS = (
    ("torchlens._capture.ages", "Ages", ("open", "close")),
    ("torchlens._capture.threads", "ThreadWatch", ("open", "close")),
    ("torchlens._capture.session", "Session", ("_note_changes",)),
)


def takes(name: str, *parameters: str) -> bool:
    """Whether `torchlens` has a function of this name with these parameters."""
    if not hasattr(tl, name):  # an import that fails is raised
        return False
    function: Callable[..., object] = getattr(tl, name)
    return set(parameters) <= inspect.signature(function).parameters.keys()


def options_have(*names: str) -> bool:
    return set(names) <= {field.name for field in fields(tl.options.CaptureOptions)}


def always_on_checks() -> list[tuple[type, str]]:
    """The methods by which a trace finds out what it did not see; none where they have other names."""
    found: list[tuple[type, str]] = []
    for module, name, methods in CHECKS:
        if find_spec(module) is None:
            return []
        kind = getattr(import_module(module), name, None)
        if kind is None or not all(hasattr(kind, method) for method in methods):
            return []
        found += [(kind, method) for method in methods]
    return found
