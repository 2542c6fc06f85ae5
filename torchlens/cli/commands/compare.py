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
from torchlens.cli.outcome import Outcome
from torchlens.cli.picture_endings import refuse_ending
from torchlens.cli.printing import show, show_json
from torchlens.cli.progress import shown_when_long
from torchlens.cli.subject import Run, end_like, is_saved, open_trace, refuse_run


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
    picture: Annotated[
        str | None,
        typer.Option(
            "--draw",
            metavar="PATH",
            help="Also draw both runs in one picture, by its ending: .svg, .png, .pdf, .dot, or .html for a "
            "page.",
        ),
    ] = None,
    as_json: JsonOption = False,
    plain: PlainOption = False,
    width: WidthOption = None,
) -> None:
    """Compare two runs op by op, and name the first op that differs.

    Targets are run on the same random inputs, from the same seed. Values that were not kept are counted, and
    make no difference.

    Exit code: 0 if both runs have the same ops and each value that can be compared is the same within the
    tolerance, 1 if not or if a model raised, 2 if a subject cannot be used or no value can be compared.
    """
    if picture is not None:
        refuse_ending(picture)
    run = Run(inputs or [], device, seed, train)
    bundle = _open_both(a, b, run)
    names, traces = tuple(bundle), list(bundle.values())
    with shown_when_long("comparing"):
        found = bundle.first_divergence(*names, tolerance=tolerance)
        outcome = Outcome(bundle.compare(*names), found if found else None, tolerance, values)
    if outcome.nothing_known is not None and all(trace.error is None for trace in traces):
        stop(outcome.nothing_known, UNUSABLE)
    if picture is not None:
        with shown_when_long(f"drawing {picture}"):
            bundle.draw(picture, *names)
    if as_json:
        show_json(outcome.data())
    else:
        show(outcome, plain=plain, width=width)
    for trace, subject in zip(traces, (a, b)):
        end_like(trace, subject, run)
    if not outcome.same:
        raise typer.Exit(NOT_WELL)


def _open_both(a: str, b: str, run: Run) -> tl.Bundle:
    """The traces of two subjects, under their names."""
    if is_saved(a) and is_saved(b):
        refuse_run(run, f"{a} is a saved trace")
    names = (a, b) if a != b else (f"{a} (first)", f"{b} (second)")
    return tl.Bundle(
        {name: open_trace(each, Run() if is_saved(each) else run) for name, each in zip(names, (a, b))}
    )
