"""What the tables of a long trace take, and where the time goes.

    python benchmarks/to_arrow.py                       # 100,000 ops of two sorts
    python benchmarks/to_arrow.py --ops 1000000 --case tiny

Times are of the processor, the fastest of the repeats, each on a trace of its own. The first `to_arrow()`
of a process stands by itself: it imports pyarrow, which imports pandas where that is installed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Annotated, Any

import torch
import typer
from rich.console import Console, Group
from rich.text import Text

import torchlens as tl
from cases import build
from million_run import timed
from tables import number, times_table

CaseName = Enum("CaseName", {name: name for name in ("tiny", "gpt2-narrow")}, type=str)

PARTS: dict[str, Callable[[Any], object]] = {
    "layers, labels, site keys": lambda trace: (trace._reader.op_labels, trace._reader.site_keys),
    "edges": lambda trace: trace._reader.lineage,
    "FLOPs": lambda trace: [trace._reader.cost(row) for row in range(len(trace._reader.rows))],
    "columns": lambda trace: trace.to_arrow(),
}
"""What the table of ops is made of, in an order in which none does another's work."""

REST: dict[str, Callable[[Any], object]] = {
    **{
        f"trace.tables.{name}": lambda trace, name=name: trace.tables[name]
        for name in ("layers", "edges", "modules", "module_calls", "params", "buffers", "frames")
    },
    "trace.to_pandas()": lambda trace: trace.to_pandas(),
    "trace.to_polars()": lambda trace: trace.to_polars(),
}
"""What is made after the table of ops."""


@dataclass
class Found:
    title: str
    ops: int
    layers: int
    first_ms: float
    milliseconds: dict[str, list[float]] = field(default_factory=dict)

    def fastest(self, row: str) -> float:
        return min(self.milliseconds[row])

    def shown(self) -> Group:
        table = times_table(
            f"{self.title}: {self.ops:,} ops in {self.layers:,} layers", "", ("ms", "us an op")
        )
        for row in ("trace.to_arrow()", *PARTS, *REST):
            if row in ("trace.tables.layers", "trace.to_pandas()"):
                table.add_section()
            name = f"  {row}" if row in PARTS else row
            table.add_row(name, number(self.fastest(row)), number(self.fastest(row) * 1e3 / self.ops))
        return Group(table, Text(f"the first of the process: {self.first_ms:,.0f} ms"), Text())


def traced(name: str, ops: int) -> tuple[str, Any]:
    """A trace of about so many ops: of one forward, or of a block of many forwards of one model."""
    case = build(name, ops)
    if name == "tiny":
        return case.title, tl.trace(case.model, case.inputs)
    with torch.no_grad():
        forwards = max(1, ops // len(tl.trace(case.model, case.inputs, save=[]).ops))
        with tl.capture(case.model) as trace:
            for _ in range(forwards):
                case.model(case.inputs)
    return f"{case.title}, {forwards} forwards", trace


def measure(name: str, ops: int, repeats: int) -> Found:
    title, trace = traced(name, ops)
    first = timed(trace.to_arrow)[1] / 1e3
    found = Found(title, len(trace.ops), len(trace.layers), first)

    def take(row: str, work: Callable[[], object]) -> None:
        found.milliseconds.setdefault(row, []).append(timed(work)[1] / 1e3)

    for _ in range(repeats):
        trace = traced(name, ops)[1]
        take("trace.to_arrow()", trace.to_arrow)
        for row, work in REST.items():
            take(row, lambda work=work, trace=trace: work(trace))
        trace = traced(name, ops)[1]
        for row, work in PARTS.items():
            take(row, lambda work=work, trace=trace: work(trace))
    return found


def main(
    case: Annotated[list[CaseName] | None, typer.Option(help="Both, unless given; may be repeated.")] = None,
    ops: Annotated[int, typer.Option(min=8, help="Of each trace, about.")] = 100_000,
    repeats: Annotated[int, typer.Option(min=1)] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print the samples as JSON.")] = False,
) -> None:
    """Measure what a trace's tables take."""
    torch.set_num_threads(1)
    console, all_found = Console(width=100, highlight=False), {}
    for name in [each.value for each in case or CaseName]:
        found = measure(name, ops, repeats)
        all_found[name] = asdict(found)
        if not as_json:
            console.print(found.shown())
    if as_json:
        print(json.dumps(all_found))


if __name__ == "__main__":
    typer.run(main)
