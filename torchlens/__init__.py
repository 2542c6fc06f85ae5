"""Shows what a PyTorch model really does: every tensor operation, its value, its place and its origins."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from torchlens._version import __version__ as __version__

if TYPE_CHECKING:
    from torchlens import errors, options, report, selectors, testing
    from torchlens._api.bundle import Bundle
    from torchlens._api.capturing import capture, trace
    from torchlens._api.files import load, save
    from torchlens._api.planning import plan
    from torchlens._api.plucking import extract, pluck
    from torchlens._api.recording import Recording, record
    from torchlens._api.trace import Trace
    from torchlens._api.validating import validate
    from torchlens.selectors import func, in_func, in_module, label, line, module, output, where
    from torchlens.storage import to_disk
    from torchlens.storage.reading import load_values

_SELECTORS = ("func", "in_func", "in_module", "label", "line", "module", "output", "where")
_LAZY = {
    "Bundle": ("torchlens._api.bundle", "Bundle"),
    "Recording": ("torchlens._api.recording", "Recording"),
    "Trace": ("torchlens._api.trace", "Trace"),
    "capture": ("torchlens._api.capturing", "capture"),
    "extract": ("torchlens._api.plucking", "extract"),
    "pluck": ("torchlens._api.plucking", "pluck"),
    "record": ("torchlens._api.recording", "record"),
    "trace": ("torchlens._api.capturing", "trace"),
    "load": ("torchlens._api.files", "load"),
    "save": ("torchlens._api.files", "save"),
    "load_values": ("torchlens.storage.reading", "load_values"),
    "plan": ("torchlens._api.planning", "plan"),
    "to_disk": ("torchlens.storage", "to_disk"),
    "validate": ("torchlens._api.validating", "validate"),
    **{name: ("torchlens.selectors", name) for name in _SELECTORS},
    "errors": ("torchlens.errors", None),
    "options": ("torchlens.options", None),
    "report": ("torchlens.report", None),
    "selectors": ("torchlens.selectors", None),
    "testing": ("torchlens.testing", None),
}
"""Public name to (module, attribute); a module itself where the attribute is None."""

__all__ = [
    "Bundle",
    "Recording",
    "Trace",
    "capture",
    "errors",
    "extract",
    "func",
    "in_func",
    "in_module",
    "label",
    "line",
    "load",
    "load_values",
    "module",
    "options",
    "output",
    "plan",
    "pluck",
    "record",
    "report",
    "save",
    "selectors",
    "testing",
    "to_disk",
    "trace",
    "validate",
    "where",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"torchlens has no {name!r}; it has {', '.join(sorted(_LAZY))}")
    from importlib import import_module

    module, attribute = _LAZY[name]
    state = random.getstate()
    found = import_module(module)
    random.setstate(state)  # rich draws numbers when it is imported
    value = found if attribute is None else getattr(found, attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
