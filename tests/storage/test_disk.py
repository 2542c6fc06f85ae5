"""What a caller may choose about values that go to disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchlens._files.layout import QUEUE_BYTES, SHARD_BYTES
from torchlens.errors import OptionError, PathTakenError
from torchlens.storage import ToDisk, to_disk

ROOT = Path(__file__).parents[2]


def test_the_path_stays_where_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    chosen = to_disk("values")
    monkeypatch.chdir("/")
    assert chosen == ToDisk(tmp_path / "values", SHARD_BYTES, QUEUE_BYTES)
    assert to_disk(tmp_path / "a" / ".." / "values", shard_bytes=5, queue_bytes=7) == ToDisk(
        chosen.path, 5, 7
    )
    assert not chosen.path.exists()


def test_an_existing_path_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    for path in (tmp_path, tmp_path / "link"):
        with pytest.raises(PathTakenError, match="exists already"):
            to_disk(path)


@pytest.mark.parametrize("path", ["", b"values", None, 5, "a\0b", "\ud800"])
def test_what_is_no_path_is_refused(path: object) -> None:
    with pytest.raises(OptionError, match=r"path=.* is no path|names nothing|is no Unicode"):
        to_disk(path)


class BytesPath(os.PathLike):
    def __fspath__(self) -> bytes:
        return b"values"


def test_a_path_in_bytes_is_refused() -> None:
    with pytest.raises(OptionError, match="names nothing"):
        to_disk(BytesPath())


@pytest.mark.parametrize("size", [0, -1, 1.5, "64", True, None])
@pytest.mark.parametrize("name", ["shard_bytes", "queue_bytes"])
def test_what_is_no_size_is_refused(name: str, size: object) -> None:
    with pytest.raises(OptionError, match=f"{name}={size!r} is no size; give a positive number of bytes"):
        to_disk("values", **{name: size})


def test_choosing_loads_no_torch() -> None:
    code = "import sys, torchlens.storage; print([m for m in ('torch', 'numpy') if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60, cwd=ROOT
    )
    assert result.stdout == "[]\n"
