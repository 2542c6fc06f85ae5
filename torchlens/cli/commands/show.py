"""`torchlens show`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

import torchlens as tl
from torchlens.cli.ending import UNUSABLE, stop
from torchlens.cli.options import (
    DeviceOption,
    InputOption,
    JsonOption,
    PlainOption,
    SeedOption,
    SubjectArgument,
    TrainOption,
    WidthOption,
)
from torchlens.cli.printing import show as print_shown
from torchlens.cli.printing import show_json
from torchlens.cli.progress import shown_when_long
from torchlens.cli.subject import Run, end_like, open_trace
from torchlens.report.amounts import listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchlens._trace.layer import Layer
    from torchlens._trace.module import Module
    from torchlens._trace.op import Op


def show(
    subject: SubjectArgument,
    site: Annotated[
        str,
        typer.Argument(
            metavar="LAYER_OR_OP", help="A label, as relu_1 or relu_1:2, or an op's index: 7, -1."
        ),
    ],
    inputs: InputOption = None,
    device: DeviceOption = "cpu",
    seed: SeedOption = 0,
    train: TrainOption = False,
    as_json: JsonOption = False,
    plain: PlainOption = False,
    width: WidthOption = None,
) -> None:
    """Print one layer or op, and its value in numbers.

    That is its place in the code, its parents and children, and statistics with a histogram.

    Exit code: 0 if the model ran through, 1 if it raised, 2 if there is no such layer or op. A value that was
    not kept is said to be missing, and is no error. Write -- before an index below zero.
    """
    run = Run(inputs or [], device, seed, train)
    trace = open_trace(subject, run)
    with shown_when_long(f"reading {site}"):
        inspected = tl.report.inspect(_found(trace, site))
    if as_json:
        show_json({"num_passes": inspected.num_passes, "ops": inspected.ops})
    else:
        print_shown(inspected, plain=plain, width=width)
    end_like(trace, subject, run)


def _found(trace: tl.Trace, site: str) -> Op | Layer:
    if re.fullmatch(r"-?\d+", site):
        try:
            return trace.ops[int(site)]
        except IndexError as error:
            stop(str(error), UNUSABLE)
    if site in trace.layers:
        return trace.layers[site]
    if site in trace.modules and site not in trace.ops:
        stop(f"{site} is a module; {_layers_told(trace.modules[site])}", UNUSABLE)
    return trace.ops[site]


def _layers_told(module: Module) -> str:
    labels = list(dict.fromkeys(layer.layer_label for each in _tree(module) for layer in each.layers))
    if labels:
        return f"the layers in it and below it: {listed(labels, 12)}"
    return "no op ran in it or below it"


def _tree(module: Module) -> Iterator[Module]:
    yield module
    for child in module.children:
        yield from _tree(child)
