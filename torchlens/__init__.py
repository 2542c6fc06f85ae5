"""Shows what a PyTorch model really does: every tensor operation, its value, its place and its origins."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchlens import errors, options, report
    from torchlens._api.capturing import capture, trace
    from torchlens._api.trace import Trace
    from torchlens._api.validating import validate

__version__ = "0.1.0"

_LAZY = {
    "Trace": ("torchlens._api.trace", "Trace"),
    "capture": ("torchlens._api.capturing", "capture"),
    "trace": ("torchlens._api.capturing", "trace"),
    "validate": ("torchlens._api.validating", "validate"),
    "errors": ("torchlens.errors", None),
    "options": ("torchlens.options", None),
    "report": ("torchlens.report", None),
}
"""Public name to (module, attribute); a module itself where the attribute is None."""

__all__ = ["Trace", "capture", "errors", "options", "report", "trace", "validate"]


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
