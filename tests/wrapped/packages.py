"""The packages that wrap models: their tests are skipped without them, except where tox installs them."""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest


def package(name: str) -> Any:
    """The package; where it is missing, the module that asks for it is skipped."""
    try:
        return importlib.import_module(name)
    except ImportError:
        if os.environ.get("TORCHLENS_ALL_PACKAGES"):
            raise
        pytest.skip(f"{name} is not installed: pip install 'torchlens[zoo]'", allow_module_level=True)
