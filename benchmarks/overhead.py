"""What a capture costs over a plain forward: time for each torch call, page faults, memory.

    python benchmarks/overhead.py
    python benchmarks/overhead.py --case gpt2 --repeats 20
    python benchmarks/overhead.py --peer-python PATH    # an interpreter with torchlens 2.36.1

Rows run in turn; medians are shown.
"""

from __future__ import annotations

import json
import os
import subprocess
from enum import Enum
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

import torchlens as tl
from cases import CASES, Case, build
from memory import measure_memory
from rows import count_calls, rows_of
from tables import Measured, Peer, rich_of
from timing import Samples, in_turn

THREADS = 2
CaseName = Enum("CaseName", {name: name for name in CASES}, type=str)


def measure(case: Case, repeats: int) -> Measured:
    calls = count_calls(case)
    rows = in_turn(rows_of(case), repeats)
    graph, ops = measure_graph(case, repeats)
    return Measured(case.title, calls, ops, rows, graph, measure_memory(case))


def measure_graph(case: Case, repeats: int) -> tuple[Samples, int]:
    """`trace.graph` alone, on traces whose layers were read before; and how many ops a trace has."""
    ops, samples = 0, [Samples() for _ in range(repeats + 1)]
    for each in samples:
        trace = tl.trace(case.model, case.inputs)
        ops = sum(layer.num_passes for layer in trace.layers)
        each.take(lambda trace=trace: trace.graph)
    kept = samples[1:]  # the first one imports networkx
    faults = [each.page_faults[0] for each in kept]
    return Samples([each.milliseconds[0] for each in kept], faults), ops


def measure_peer(python: Path, arguments: list[str]) -> Peer:
    script = Path(__file__).with_name("peer.py")
    command = [str(python), str(script), "--threads", str(THREADS), *arguments]
    # PYTHONPATH may name this torchlens
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=alone)
    if result.returncode:
        raise typer.BadParameter(f"{python} could not run {script.name}:\n{result.stderr}")
    found = json.loads(result.stdout.splitlines()[-1])
    return Peer(found["version"], Samples(**found["plain"]), Samples(**found["trace"]))


def main(
    case: Annotated[list[CaseName] | None, typer.Option(help="All, unless given; may be repeated.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Of each row.")] = 9,
    peer_python: Annotated[Path | None, typer.Option(help="Interpreter with a released torchlens.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the samples and figures as JSON.")] = False,
    grad: Annotated[
        bool, typer.Option(help="Whether gradients are on, as torch has them by default.")
    ] = True,
    tiny_ops: Annotated[int, typer.Option(min=2, help="Operations in the case of tiny ones.")] = 10_000,
) -> None:
    """Measure what a capture costs, next to a plain forward and to only keeping every output."""
    torch.set_num_threads(THREADS)
    console, found = Console(width=100, highlight=False), {}
    for name in case or list(CaseName):
        with torch.set_grad_enabled(grad):
            measured = measure(build(name.value, tiny_ops), repeats)
        if peer_python is not None:
            arguments = f"--case {name.value} --repeats {min(repeats, 3)} --tiny-ops {tiny_ops}".split()
            measured.peer = measure_peer(peer_python, arguments + ([] if grad else ["--no-grad"]))
        found[name.value] = measured.as_data()
        if not as_json:
            console.print(rich_of(measured))
    if as_json:
        print(json.dumps(found))


if __name__ == "__main__":
    typer.run(main)
