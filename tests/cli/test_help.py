"""Help and the ways to start the program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torchlens
from tests.cli.running import run

COMMANDS = ("demo", "summary", "save", "show", "draw", "compare", "export", "doctor")


def test_without_a_command_the_help_is_shown() -> None:
    result = run()
    assert [line for line in COMMANDS if f"\n  {line} " not in result.output] == []


def test_no_description_of_a_command_is_cut() -> None:
    listed = run("--help").output.partition("Commands:\n")[2].partition("\n\n")[0]
    assert [line for line in listed.splitlines() if not line.endswith(".") or line.endswith("...")] == []


def test_the_version() -> None:
    assert run("--version").stdout == f"torchlens {torchlens.__version__}\n"


def test_help_needs_no_torch_and_has_an_example_and_exit_codes() -> None:
    code = f"""
import sys
sys.modules["torch"] = sys.modules["pyarrow"] = None
from torchlens.cli.app import app
for command in {COMMANDS!r}:
    app([command, "--help"], standalone_mode=False)
app(["--help"], standalone_mode=False)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    pages = result.stdout.split("Usage:")[1:]
    assert len(pages) == len(COMMANDS) + 1
    assert [page for page in pages if "Example: torchlens " not in page] == []
    assert len([page for page in pages if "Exit code" not in page]) == 1  # the demo cannot fail


def test_run_as_a_module(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "torchlens", "summary", "torch.nn:ReLU", "-i", "3"]
    environment = {"PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONIOENCODING": "ascii", "COLUMNS": "70"}
    result = subprocess.run(words, capture_output=True, text=True, timeout=120, cwd=tmp_path, env=environment)
    assert result.returncode == 0, result.stderr
    assert "ReLU - relu_1" in result.stdout
    assert result.stdout.isascii()
