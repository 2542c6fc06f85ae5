"""A folder to stand in."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import NET


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a model's file, to stand in; what importing leaves behind is taken away."""
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "broken.py").write_text("import torch\nraise OSError('no weights')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(vars(sys.modules[name]).get("__file__")).startswith(str(tmp_path)):
            del sys.modules[name]
