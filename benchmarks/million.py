"""A very long run: whether time grows in step with the number of operations, and what one of them takes.

Each row and size has a process to itself, so that no other left memory behind: million_run.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Group
from rich.text import Text

from million_run import LONG_RUNS, Long, available
from rows import NOT_BUILT
from tables import number, times_table

HEADINGS = ("ops", "us", "x plain", "us to read", "bytes", "read", "peak")


@dataclass
class Million:
    sizes: tuple[int, ...]
    rows: dict[str, list[Long] | str]

    def growth(self, row: str) -> float | None:
        """Time for an operation in the longest run, over that in the shortest."""
        runs = self.rows[row]
        return None if isinstance(runs, str) else runs[-1].microseconds / runs[0].microseconds

    def as_data(self) -> dict[str, Any]:
        return {**asdict(self), "growth": {row: self.growth(row) for row in self.rows}}

    def shown(self) -> Group:
        table = times_table(f"{self.sizes[-1]:,} tiny operations: time and bytes for each", "", HEADINGS)
        for row, runs in self.rows.items():
            table.add_section()
            if isinstance(runs, str):
                table.add_row(row, runs)
                continue
            for place, run in enumerate(runs):
                table.add_row("" if place else row, f"{run.ops:,}", *cells(run))
        grown = [(row, self.growth(row)) for row in self.rows]
        lines = [
            f"{row}: an operation of the longest run takes {by:.2f} of one of the shortest"
            for row, by in grown
            if by
        ]
        return Group(table, *map(Text, lines), Text())


def cells(run: Long) -> list[str]:
    times = [run.microseconds, run.microseconds / run.plain_microseconds, run.read_microseconds]
    sizes = [run.record_bytes, run.read_bytes, run.peak_bytes]
    return [*map(number, times), *(number(size / run.ops, 0) for size in sizes)]


def run_alone(row: str, ops: int, repeats: int, threads: int) -> Long:
    script = Path(__file__).with_name("million_run.py")
    words = f"--ops {ops} --repeats {repeats} --threads {threads}"
    command = [sys.executable, str(script), "--row", row, *words.split()]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise typer.BadParameter(f"{script.name} failed for {row!r} and {ops:,} operations:\n{result.stderr}")
    return Long(**json.loads(result.stdout.splitlines()[-1]))


def measure_million(ops: int, repeats: int, threads: int) -> Million:
    sizes = (ops // 10, ops * 3 // 10, ops)
    rows: dict[str, list[Long] | str] = {
        row: [run_alone(row, size, repeats, threads) for size in sizes] if available(row) else NOT_BUILT
        for row in LONG_RUNS
    }
    return Million(sizes, rows)
