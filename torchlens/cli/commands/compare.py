"""`torchlens compare`."""

from __future__ import annotations

from typing import Annotated

import typer

import torchlens as tl
from torchlens.cli.ending import NOT_WELL, UNUSABLE, stop
from torchlens.cli.options import (
    SUBJECT_FORM,
    DeviceOption,
    InputOption,
    JsonOption,
    PlainOption,
    SeedOption,
    TrainOption,
    WidthOption,
)
from torchlens.cli.printing import show, show_json
from torchlens.cli.progress import shown_when_long
from torchlens.cli.subject import Run, end_like, is_saved, open_trace, refuse_inputs


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help=SUBJECT_FORM)],
    b: Annotated[str, typer.Argument(metavar="B", help="The same for the other run.")],
    inputs: InputOption = None,
    device: DeviceOption = "cpu",
    seed: SeedOption = 0,
    train: TrainOption = False,
    tolerance: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="How far an element may be off, absolute and relative; otherwise what its dtype can tell.",
        ),
    ] = None,
    values: Annotated[
        bool, typer.Option("--values", help="Do not count ops that one run alone has as a difference.")
    ] = False,
    as_json: JsonOption = False,
    plain: PlainOption = False,
    width: WidthOption = None,
) -> None:
    """Line two runs up op by op, and name the first op whose values differ.

    Targets are run on the same random inputs, from the same seed. Values that were not kept are counted, and
    make no difference.

    Exit code: 0 if both runs have the same ops and each value that can be compared is the same within the
    tolerance, 1 if not or if a model raised, 2 if a subject cannot be used or no value can be compared.
    """
    run = Run(inputs or [], device, seed, train)
    if is_saved(a) and is_saved(b):
        refuse_inputs(a, run)
    names = (a, b) if a != b else (f"{a} (first)", f"{b} (second)")
    traces = [open_trace(each, Run() if is_saved(each) else run) for each in (a, b)]
    bundle = tl.Bundle(dict(zip(names, traces)))
    with shown_when_long("comparing"):
        page = bundle.compare(*names)
        found = bundle.first_divergence(*names, tolerance=tolerance)
    lone = len(page.only_in_a) + len(page.only_in_b)
    same = not found and (values or not lone)
    if as_json:
        show_json(
            {
                "same": same,
                "first_divergence": found if found else None,
                "compared": len(page.rows) - len(page.not_compared),
                "not_compared": len(page.not_compared),
                "only_in_a": page.only_in_a,
                "only_in_b": page.only_in_b,
                "ops": page.rows,
            }
        )
    else:
        show(page, plain=plain, width=width)
        typer.echo("")
        show(found, plain=plain, width=width)
    for trace, subject in zip(traces, (a, b)):
        end_like(trace, subject, run)
    if page.rows and len(page.rows) == len(page.not_compared):
        stop(f"no value could be compared: {page.not_compared[0].reason}", UNUSABLE)
    if not same:
        raise typer.Exit(NOT_WELL)
