"""`torchlens summary`."""

from __future__ import annotations

from typing import Annotated

import typer

import torchlens as tl
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
from torchlens.cli.printing import show, show_json
from torchlens.cli.subject import Run, end_like, open_trace


def summary(
    subject: SubjectArgument,
    inputs: InputOption = None,
    device: DeviceOption = "cpu",
    seed: SeedOption = 0,
    train: TrainOption = False,
    depth: Annotated[
        int | None, typer.Option(min=0, help="Open the tree to so many modules below the root.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Give every layer its row.")] = False,
    as_json: JsonOption = False,
    plain: PlainOption = False,
    width: WidthOption = None,
) -> None:
    """Print the modules, layers and cost of a run.

    Of a run that failed, also the call that raised.

    Exit code: 0 if the model ran through, 1 if it raised, 2 for a subject or an input that cannot be used.
    """
    run = Run(inputs or [], device, seed, train)
    trace = open_trace(subject, run)
    if as_json:
        show_json(tl.report.figures(trace))
    else:
        show(trace.summary(depth=depth, fold=not full), plain=plain, width=width)
    end_like(trace, subject, run)
