"""What a capture costs over a plain forward: time for each torch call, page faults, memory.

    python benchmarks/overhead.py
    python benchmarks/overhead.py --case gpt2 --repeats 20
    python benchmarks/overhead.py --case training-step
    python benchmarks/overhead.py --case million        # 1e5, 3e5 and 1e6 operations; takes minutes
    python benchmarks/overhead.py --peer-python PATH    # an interpreter with torchlens 2.36.1
    python benchmarks/overhead.py --nnsight-python PATH # an interpreter with nnsight

Rows run in turn; medians are shown.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Protocol

import torch
import typer
from rich.console import Console, RenderableType

import torchlens as tl
from cases import CASES, Case, build
from memory import measure_memory
from million import measure_million
from peak import measure_peaks
from peers import MOST_REPEATS, MOST_TINY_OPS, Peer, measure_peer
from references import count_calls
from rows import rows_of
from tables import Measured
from timing import Samples, in_turn
from training import TRAINING_CASES, measure_training

MILLION = "million"
NAMES = [*CASES, *TRAINING_CASES, MILLION]
CaseName = Enum("CaseName", {name: name for name in NAMES}, type=str)


class Found(Protocol):
    def as_data(self) -> dict[str, Any]: ...
    def shown(self) -> RenderableType: ...


@dataclass
class Request:
    repeats: int
    grad: bool
    tiny_ops: int
    million_ops: int
    threads: int
    peers: dict[str, Path]
    """By script."""


def measure(name: str, request: Request) -> Found:
    if name == MILLION:
        return measure_million(request.million_ops, min(request.repeats, MOST_REPEATS), request.threads)
    if name in TRAINING_CASES:
        return measure_training(name, request.repeats)
    with torch.set_grad_enabled(request.grad):
        found = measure_forward(build(name, request.tiny_ops), request.repeats)
    found.peers = [ask_peer(script, python, name, request) for script, python in request.peers.items()]
    return found


def measure_forward(case: Case, repeats: int) -> Measured:
    calls = count_calls(case)
    rows = in_turn(rows_of(case), repeats)
    graph, ops = measure_graph(case, repeats)
    places = {"one module": case.middle, "1/4": case.quarter}
    return Measured(case.title, calls, ops, places, rows, graph, measure_memory(case), measure_peaks(case))


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


def ask_peer(script: str, python: Path, name: str, request: Request) -> Peer:
    repeats, tiny_ops = min(request.repeats, MOST_REPEATS), min(request.tiny_ops, MOST_TINY_OPS)
    words = f"--threads {request.threads} --case {name} --repeats {repeats} --tiny-ops {tiny_ops}"
    calls = count_calls(build(name, tiny_ops))
    arguments = words.split() + ([] if request.grad else ["--no-grad"])
    return measure_peer(python, script, arguments, calls)


def main(  # noqa: PLR0913  # an option is a parameter
    case: Annotated[
        list[CaseName] | None, typer.Option(help="All but the million, unless given; may be repeated.")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Of each row.")] = 9,
    peer_python: Annotated[Path | None, typer.Option(help="Interpreter with a released torchlens.")] = None,
    nnsight_python: Annotated[Path | None, typer.Option(help="Interpreter with nnsight.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the samples and figures as JSON.")] = False,
    grad: Annotated[
        bool, typer.Option(help="Whether gradients are on, as torch has them by default.")
    ] = True,
    tiny_ops: Annotated[int, typer.Option(min=8, help="Operations in the case of tiny ones.")] = 10_000,
    million_ops: Annotated[int, typer.Option(min=80, help="The most in the case of a million.")] = 1_000_000,
    threads: Annotated[int, typer.Option(min=1, help="Of torch, within an operation.")] = 2,
) -> None:
    """Measure what a capture costs, next to a plain forward and to torch and others used for the same."""
    torch.set_num_threads(threads)
    pythons = {"peer_torchlens.py": peer_python, "peer_nnsight.py": nnsight_python}
    peers = {script: python for script, python in pythons.items() if python is not None}
    request = Request(repeats, grad, tiny_ops, million_ops, threads, peers)
    console, found = Console(width=100, highlight=False), {}
    for name in [each.value for each in case] if case else NAMES[:-1]:
        measured = measure(name, request)
        found[name] = measured.as_data()
        if not as_json:
            console.print(measured.shown())
    if as_json:
        print(json.dumps(found))


if __name__ == "__main__":
    typer.run(main)
