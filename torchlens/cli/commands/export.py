"""`torchlens export`."""

from __future__ import annotations

import sys
from io import BufferedIOBase
from pathlib import Path
from typing import Annotated, cast

import typer

from torchlens.cli.ending import UNUSABLE, stop
from torchlens.cli.options import (
    DeviceOption,
    InputOption,
    SeedOption,
    SubjectArgument,
    TrainOption,
)
from torchlens.cli.progress import shown_when_long
from torchlens.cli.subject import Run, end_like, open_trace
from torchlens.cli.table_files import write_file, write_table
from torchlens.cli.table_forms import FORMS, Form, form_of


def export(
    subject: SubjectArgument,
    to: Annotated[
        str | None, typer.Option(metavar="|".join(FORMS), help="The form; otherwise as PATH ends.")
    ] = None,
    table: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="ops, layers, edges, modules, module_calls, params, buffers or frames."
        ),
    ] = "ops",
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            help="A file, replaced if it is there; its folders are made. Otherwise stdout.",
        ),
    ] = None,
    inputs: InputOption = None,
    device: DeviceOption = "cpu",
    seed: SeedOption = 0,
    train: TrainOption = False,
) -> None:
    """Write a table of a trace to a file.

    That is its ops, layers, edges, modules, parameters or lines of code.

    In CSV, lists are JSON text and an empty cell is a missing value; JSON is an array with an object for each
    row.

    Exit code: 0 if the model ran through, 1 if it raised, 2 if nothing could be written.
    """
    form = _form(to, output)
    run = Run(inputs or [], device, seed, train)
    trace = open_trace(subject, run)
    with shown_when_long(f"making the table {table}"):
        made = trace.tables[table]
    with shown_when_long(f"writing {output or 'stdout'}", made.num_rows) as advance:
        if output is None:
            write_table(made, cast("BufferedIOBase", sys.stdout.buffer), form, advance)
        else:
            write_file(made, Path(output), form, advance)
    end_like(trace, subject, run)


def _form(to: str | None, output: str | None) -> Form:
    """The form that is asked for, or that the path's ending means."""
    if to is None and output is None:
        stop(f"say in which form: --to {' or '.join(FORMS)}, or -o with a path that ends in one", UNUSABLE)
    form = form_of(to if to is not None else Path(output or "").suffix.removeprefix("."))
    if form in ("parquet", "arrow") and output is None and sys.stdout.isatty():
        stop(f"{form} is no text for a terminal; give -o PATH", UNUSABLE)
    return form
