"""A run that is killed or whose disk is full leaves what was finished, and says what is missing."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tests.files.bits import check_numbers, check_same, number_of
from tests.files.ends import CALLS, KEYS, SIZES
from torchlens._files.layout import MANIFEST
from torchlens._files.values import StoredValues
from torchlens._files.writer import ValueWriter
from torchlens.errors import FileFormatError, MissingValueError, PathNotFoundError, UnwritablePathError

ROOT = Path(__file__).parents[2]


def run(what: str, path: Path) -> list[dict[str, str]]:
    result = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.files.ends", what, str(path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=ROOT,
    )
    assert (result.returncode, result.stderr) == (0, "")
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    return run("killed", tmp_path_factory.mktemp("killed"))


def keys_in(log: str) -> set[str]:
    return set(log.partition("{")[0].split())


@pytest.mark.parametrize("call", CALLS)
def test_killed_at_each_call(call: str, killed: list[dict[str, str]]) -> None:
    ends = [end for end in killed if Path(end["path"]).name.startswith(f"{call} ")]
    readable = set()
    for end in ends[:-1]:
        path, put = Path(end["path"]), keys_in(end["log"])
        assert end["code"] == -9
        if not (path / MANIFEST).exists():
            assert put == set()
            with pytest.raises(FileFormatError, match="was killed before it began"):
                StoredValues(path)
            continue
        stored = StoredValues(path)
        assert put <= set(stored) | set(stored.missing) <= set(KEYS)
        check_numbers(path, set(stored) | set(stored.missing), stored.status)
        assert sum(1 for _ in path.glob("*.safetensors")) * 2 >= len(stored) >= 0
        assert stored.status == "unfinished" or (call == "fsync" and len(stored) == len(KEYS))
        for key in stored.missing:
            with pytest.raises(MissingValueError, match="was killed"):
                stored[key]
        readable.add(len(stored))
    assert {0, 2, 4, 6, 8} <= readable  # between the shards as well
    last = json.loads(ends[-1]["log"].removeprefix(" ".join(KEYS)))
    assert last == {"failure": None, "missing": {}}
    check_numbers(Path(ends[-1]["path"]), set(KEYS), "complete")


def test_killed_from_outside_when_there_are_shards(tmp_path: Path) -> None:
    path = tmp_path / "values"
    words = [sys.executable, "-m", "tests.files.ends", "endless", str(path)]
    with subprocess.Popen(words, cwd=ROOT) as child:
        while len(list(path.glob("*.safetensors"))) < 5:
            assert child.poll() is None
            time.sleep(0.001)
        child.kill()
    stored = StoredValues(path)
    assert len(stored) >= 10
    check_numbers(path, set(stored) | set(stored.missing), "unfinished")


def test_files_of_a_limited_size(tmp_path: Path) -> None:
    """`RLIMIT_FSIZE` makes one file after the other full."""
    seen = set()
    for end in run("limited", tmp_path):
        path = Path(end["path"])
        assert end["code"] == 0
        if "refused" in end["log"]:
            assert "File too large" in end["log"]
            assert not path.exists()
            seen.add("refused")
            continue
        said = json.loads(end["log"].removeprefix(" ".join(KEYS)))
        stored = StoredValues(path)
        assert set(stored) | set(said["missing"]) == set(KEYS)
        assert set(stored.missing) <= set(said["missing"])
        for key in stored:
            check_same(stored[key], number_of(key))
        if said["failure"] is None:
            assert (said["missing"], stored.status) == ({}, "complete")
        else:
            assert "EFBIG" in said["failure"]
            assert all("EFBIG" in reason for reason in said["missing"].values())
            assert stored.status == "unfinished"
        seen.add(said["failure"] and said["failure"].partition(" could")[0])
    assert seen == {"refused", "a shard", "the index", None}


class FullDisk:
    """A function of `os` that fails when it is called for the n-th time, and from then on if `for_good`."""

    def __init__(self, call: str, at: int, *, for_good: bool) -> None:
        self.original, self.at, self.for_good = getattr(os, call), at, for_good
        self.count = 0

    def __call__(self, *args: object) -> object:
        self.count += 1
        if self.count == self.at or (self.for_good and self.count > self.at):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.original(*args)


def forward(path: Path) -> ValueWriter | None:
    """The closed writer; None if the path was refused before anything ran."""
    try:
        writer = ValueWriter(path, **SIZES)
    except UnwritablePathError:
        return None
    for key in KEYS:
        writer.put(key, number_of(key), {"label": f"op:{key}"})
    writer.close()
    return writer


@pytest.mark.parametrize("for_good", [True, False], ids=["for good", "once"])
@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_a_disk_that_is_full_at_each_call(
    call: str, for_good: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, refused, failed = 0, 0, 0
    while True:
        at += 1
        path, disk = tmp_path / str(at), FullDisk(call, at, for_good=for_good)
        with monkeypatch.context() as patch:
            patch.setattr(os, call, disk)
            writer = forward(path)
        if writer is None:
            assert not path.exists()
            refused += 1
            continue
        stored = StoredValues(path)
        for key in stored:
            check_same(stored[key], number_of(key))
        if writer.failure is None:
            assert (writer.missing(), set(stored), stored.status) == ({}, set(KEYS), "complete")
            if disk.count < at:
                break
            assert call == "fsync"  # of the directory, for the sake of names, which not every system can
            continue
        failed += 1
        check_failure(writer, stored)
    assert refused
    assert failed > 4


def check_failure(writer: ValueWriter, stored: StoredValues) -> None:
    missing = writer.missing()
    assert "No space left on device (ENOSPC)" in str(writer.failure)
    assert all("ENOSPC" in reason for reason in missing.values())
    assert set(missing) >= set(KEYS) - set(stored)
    assert stored.status == "unfinished"
    if stored.failure is not None:  # something could be written after it
        assert stored.failure == writer.failure
        assert stored.missing == missing
        assert all(stored.about(key) == {"label": f"op:{key}"} for key in KEYS)


def test_memory_that_runs_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = ValueWriter(tmp_path / "values", shard_bytes=100, queue_bytes=100)
    huge = torch.empty(0).set_(torch.UntypedStorage(0))
    writer.put("a", number_of("a"), {})
    with monkeypatch.context() as patch:
        patch.setattr(torch, "empty", lambda *args, **kwargs: raise_error(MemoryError("no more")))
        writer.put("b", number_of("b"), {})
    writer.put("c", number_of("c"), {})
    writer.put("d", huge, {})
    writer.close()
    assert list(StoredValues(tmp_path / "values")) == ["a", "c", "d"]
    assert writer.missing() == {"b": "it could not be copied: MemoryError: no more"}


def raise_error(error: Exception) -> None:
    raise error


def test_an_existing_path_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("directory", "file", "link"):
        with pytest.raises(FileExistsError, match="exists already"):
            ValueWriter(tmp_path / name)
    assert (tmp_path / "file").read_text() == "mine"
    assert not list((tmp_path / "directory").iterdir())
    with pytest.raises(UnwritablePathError, match="cannot be written"):
        ValueWriter(tmp_path / "file" / "below")


def test_a_path_without_values(tmp_path: Path) -> None:
    with pytest.raises(PathNotFoundError, match="there is no"):
        StoredValues(tmp_path / "nowhere")
    with pytest.raises(FileFormatError, match=r"has no manifest\.json"):
        StoredValues(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(FileFormatError, match=r"has no manifest\.json"):
        StoredValues(tmp_path / "file")


def test_an_interpreter_that_ends_without_closing(tmp_path: Path) -> None:
    """What was put is written all the same, and nobody claims that it was everything."""
    assert run("exiting", tmp_path / "values") == []
    assert not check_numbers(tmp_path / "values", set(KEYS), "unfinished").missing


def test_reading_while_it_is_written(tmp_path: Path) -> None:
    writer = ValueWriter(tmp_path / "values", **SIZES)
    for key in KEYS:
        writer.put(key, number_of(key), {"label": f"op:{key}"})
        stored = StoredValues(tmp_path / "values")
        assert key in stored.missing or key in stored
        check_numbers(tmp_path / "values", set(stored) | set(stored.missing), "unfinished")
    writer.close()
    check_numbers(tmp_path / "values", set(KEYS), "complete")
