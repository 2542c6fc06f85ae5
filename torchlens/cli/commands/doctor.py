"""`torchlens doctor`."""

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
    TrainOption,
    WidthOption,
)
from torchlens.cli.printing import show, show_json
from torchlens.cli.progress import shown_when_long
from torchlens.cli.subject import Run, is_saved, open_trace, prepare, refuse_run

_NEITHER = "--markdown and --json are two forms of one page; give one of them"


def doctor(
    subject: Annotated[
        str | None,
        typer.Argument(
            metavar="SUBJECT", help=f"{SUBJECT_FORM} Without it, only the environment is looked at."
        ),
    ] = None,
    inputs: InputOption = None,
    device: DeviceOption = "cpu",
    train: TrainOption = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="A Markdown table, for an issue.")] = False,
    as_json: JsonOption = False,
    plain: PlainOption = False,
    width: WidthOption = None,
) -> None:
    """Say what is refused, limited or not tested.

    That is in a model, its inputs and this environment. The model is built, and not run. Of a saved trace,
    each recorded call is made again instead, and what does not give the recorded value is named.

    Exit code: 0 if nothing is refused and nothing failed, 1 if something is or did, 2 for a subject or an
    input that cannot be used.
    """
    if markdown and as_json:
        stop(_NEITHER, UNUSABLE)
    run = Run(inputs or [], device, train=train)
    if subject is not None and is_saved(subject):
        _check(subject, run, markdown=markdown, as_json=as_json, plain=plain, width=width)
    else:
        if subject is None:
            refuse_run(run, "none is given")
        model, args, kwargs = (None, None, {}) if subject is None else prepare(subject, run)
        page = tl.report.doctor(model, args, input_kwargs=kwargs)
        if markdown:
            typer.echo(page.to_markdown())
        elif as_json:
            show_json({"name": page.name, "refused": len(page.of("refused")), "rows": page.rows})
        else:
            show(page, plain=plain, width=width)
        if not page:
            raise typer.Exit(NOT_WELL)


def _check(subject: str, run: Run, *, markdown: bool, as_json: bool, plain: bool, width: int | None) -> None:
    """Look whether a saved trace holds what it says."""
    if markdown:
        stop("--markdown is for the environment and for targets; leave it out for a saved trace", UNUSABLE)
    trace = open_trace(subject, run)
    with shown_when_long(f"checking {subject}"):
        report = trace.check()
    if as_json:
        data = {"name": report.name, "holds": bool(report), "checked": report.checked}
        found = {"failed": report.failed, "unchecked": report.unchecked, "unverified": report.unverified}
        show_json({**data, **found})
    else:
        show(report, plain=plain, width=width)
    if not report:
        raise typer.Exit(NOT_WELL)
