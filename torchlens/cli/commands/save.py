"""`torchlens save`."""

from __future__ import annotations

from typing import Annotated

import typer

import torchlens as tl
from torchlens.cli.ending import UNUSABLE, stop
from torchlens.cli.options import (
    TARGET_FORM,
    DeviceOption,
    InputOption,
    SeedOption,
    TrainOption,
)
from torchlens.cli.progress import shown_when_long
from torchlens.cli.subject import Run, end_like, is_saved, open_trace


def save(
    target: Annotated[str, typer.Argument(metavar="TARGET", help=f"{TARGET_FORM}.")],
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="PATH", help="run.tlens for one file, anything else a directory."
        ),
    ],
    inputs: InputOption = None,
    device: DeviceOption = "cpu",
    seed: SeedOption = 0,
    train: TrainOption = False,
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="SITE", help="Keep the values of this label or module only. Once for each."),
    ] = None,
    params: Annotated[
        bool, typer.Option("--params", help="Save the values of the parameters as well.")
    ] = False,
) -> None:
    """Run a model once and save the trace. What ran of a model that raises is saved too.

    Exit code: 0 if the model ran through, 1 if it raised, 2 if nothing could be saved.
    """
    if is_saved(target):
        stop(f"{target} is a saved trace already; save takes {TARGET_FORM}", UNUSABLE)
    run = Run(inputs or [], device, seed, train)
    trace = open_trace(target, run, keep=keep)
    with shown_when_long(f"writing {output}"):
        tl.save(trace, output, params=params)
    end_like(trace, target, run)
