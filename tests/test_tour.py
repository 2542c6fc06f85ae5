"""docs/tour.md is done as it says: its files are written, its commands and its code run, in order."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.installation import ROOT, as_installed

PAGE = ROOT / "docs" / "tour.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FLAGS = doctest.ELLIPSIS
ADDOPTS = "-p no:cacheprovider -p no:hypothesispytest -p no:anyio"
"""The page needs no other plugins, which take seconds to import."""


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    before: str
    """The last line before it that is not empty."""
    line: int

    @property
    def file(self) -> str | None:
        named = re.fullmatch(r"`([\w./-]+)`:", self.before)
        return named[1] if named else None


def blocks() -> Iterator[Block]:
    text = PAGE.read_text(encoding="utf-8")
    for found in BLOCK.finditer(text):
        before = text[: found.start()].rstrip().rpartition("\n")[2]
        yield Block(found[1], found[2], before, text.count("\n", 0, found.start()) + 1)


@dataclass
class Reader:
    """Somebody who does what the page says in a folder of their own."""

    folder: Path
    environment: dict[str, str]
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__tour__"})
    output: str = ""

    def do(self, block: Block) -> None:
        if block.before.startswith("<!-- not run:"):
            assert "pip install" in block.text
        elif block.file is not None:
            path = self.folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif block.language == "bash":
            self.run(block)
        elif block.language == "python" and ">>>" in block.text:
            self.try_examples(block)
        elif block.language == "python":
            exec(compile("\n" * block.line + block.text, str(PAGE), "exec"), self.names)
        else:
            assert block.language == "text", f"line {block.line}: nothing is done with a block of this kind"
            assert_shown(block, self.output)

    def run(self, block: Block) -> None:
        expected = re.fullmatch(r"<!-- exit code: (\d+) -->", block.before)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.text],
            cwd=self.folder, env={**os.environ, **self.environment},
            capture_output=True, encoding="utf-8", timeout=300,
        )  # fmt: skip
        self.output = done.stdout
        code = int(expected[1]) if expected else 0
        assert done.returncode == code, f"line {block.line}: {done.stdout}\n{done.stderr}"

    def try_examples(self, block: Block) -> None:
        runner = doctest.DocTestRunner(optionflags=FLAGS)
        test = doctest.DocTestParser().get_doctest(block.text, self.names, "tour", str(PAGE), block.line)
        said: list[str] = []
        runner.run(test, out=said.append, clear_globs=False)
        self.names.update(test.globs)
        assert not runner.failures, "".join(said)


def assert_shown(block: Block, output: str) -> None:
    """Each line of the block is one of the output, in this order; `...` stands for anything."""
    lines = iter(output.splitlines())
    for expected in block.text.splitlines():
        pattern = re.escape(expected.strip()).replace(r"\.\.\.", ".*")
        pattern = re.sub(r"(\\ )+", r"\\s+", pattern)
        assert any(re.fullmatch(pattern, line.strip()) for line in lines), f"{expected!r} is not in\n{output}"


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    environment = as_installed(tmp_path / "installed")
    settings = {"COLUMNS": "90", "PYTHONIOENCODING": "utf-8", "PYTEST_ADDOPTS": ADDOPTS}
    yield Reader(folder, {**environment, **settings})
    sys.modules.pop("model", None)


def test_the_tour(reader: Reader) -> None:
    for block in blocks():
        reader.do(block)
    assert {path.name for path in reader.folder.iterdir()} >= {"run.tlens", "ops.parquet", "__traces__"}
    commands = re.findall(r"- run: (.*)", (reader.folder / ".github/workflows/tests.yml").read_text())
    assert commands == ["pip install -r requirements.txt", "pytest --ignore=vendor"]
    requirements = (reader.folder / "requirements.txt").read_text().split()
    torch = next(word for block in blocks() for word in block.text.split() if word.startswith("torch=="))
    assert requirements == [torch, "pytest", "./vendor/torchlens"], "the release that the tour installs"
    reader.run(Block("bash", commands[1], "", 0))
    assert "1 passed" in reader.output


def test_every_command_is_in_a_block_that_runs() -> None:
    """Only the installation is left out."""
    left_out = [block for block in blocks() if block.before.startswith("<!-- not run:")]
    assert [block.text.split()[:2] for block in left_out] == [["pip", "install"]]
    assert len(list(blocks())) > 20
    fences = PAGE.read_text(encoding="utf-8").count("\n```")
    assert fences == 2 * len(list(blocks())), "a fence that is not understood"
