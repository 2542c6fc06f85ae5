"""Other packages under interpreters of their own, asked for the same work."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from references import PLAIN
from timing import Rows, Samples, ratio

MOST_REPEATS = 3
MOST_TINY_OPS = 500
"""Some take seconds for what others do in milliseconds. Each peer is compared with its own plain forward."""


@dataclass
class Peer:
    package: str
    version: str
    calls: int
    rows: Rows

    @property
    def name(self) -> str:
        return f"{self.package} {self.version}"

    def ratio(self, row: str) -> float | None:
        return ratio(self.rows, row, PLAIN)


def run_script(python: Path, script: str, arguments: list[str]) -> dict[str, Any]:
    """What a script of this directory prints in its last line."""
    path = Path(__file__).with_name(script)
    # PYTHONPATH may name this torchlens
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(python), str(path), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=alone)
    if result.returncode:
        raise typer.BadParameter(f"{python} could not run {script}:\n{result.stderr}")
    return json.loads(result.stdout.splitlines()[-1])


def measure_peer(python: Path, script: str, arguments: list[str], calls: int) -> Peer:
    """`calls` are counted here: a package that wraps torch's functions makes more of them."""
    found = run_script(python, script, arguments)
    rows = {name: row if isinstance(row, str) else Samples(**row) for name, row in found.pop("rows").items()}
    return Peer(**found, calls=calls, rows=rows)
