"""A snapshot that is yet to be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlens.testing import Snapshot


@pytest.fixture
def snapshot(tmp_path: Path) -> Snapshot:
    return Snapshot(tmp_path / "a.txt", "type this")
