"""docs/gallery.md and its pictures are what the command that it names writes."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "gallery"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gallery")
    result = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "gallery.py"), str(folder)],
        capture_output=True, encoding="utf-8", timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return folder


def size(picture: Path) -> tuple[int, int]:
    """Width and height of a PNG, from its header."""
    content = picture.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n") and content.endswith(b"IEND\xaeB`\x82")
    return struct.unpack(">II", content[16:24])


def test_the_page_is_what_the_command_writes(written: Path) -> None:
    page = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    assert page == (written / "gallery.md").read_text(encoding="utf-8")


def test_the_pictures_are_what_the_command_draws(written: Path) -> None:
    """Of the same size, that is: where the text of a picture changes, nearly always so does its size."""
    drawn = {path.name: size(path) for path in (written / "gallery").iterdir()}
    assert {path.name: size(path) for path in PICTURES.iterdir()} == drawn
    assert all(width > 300 and height > 300 for width, height in drawn.values())


def test_every_picture_is_on_the_page_once(written: Path) -> None:
    page = (written / "gallery.md").read_text(encoding="utf-8")
    assert all(page.count(f"(gallery/{path.name})") == 1 for path in PICTURES.iterdir())
