"""`torchlens draw`."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Annotated, cast

import typer

import torchlens as tl
from torchlens.cli.ending import UNUSABLE, stop
from torchlens.cli.options import (
    DeviceOption,
    InputOption,
    SeedOption,
    SubjectArgument,
    TrainOption,
)
from torchlens.cli.picture_endings import PAGES, refuse_ending
from torchlens.cli.progress import shown_when_long
from torchlens.cli.subject import Run, end_like, error_of, open_trace

if TYPE_CHECKING:
    from torchlens.drawing.picture import Picture
    from torchlens.selectors import Selector


class ColorBy(str, Enum):
    """What a picture is coloured by."""

    TIME = "time"
    FLOPS = "flops"
    BYTES = "bytes"


class Direction(str, Enum):
    """Where data flows."""

    DOWN = "down"
    RIGHT = "right"
    UP = "up"
    LEFT = "left"


class Program(str, Enum):
    """What places the nodes."""

    GRAPHVIZ_PURE = "graphviz-pure"
    DOT = "dot"


def draw(
    subject: SubjectArgument,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            help="A picture, in the form that its ending names: .svg, .png, .pdf, .dot, or .html for a page "
            "to look around in. It is replaced if it is there; its folders are made. Without it, DOT text "
            "goes to stdout, for a file or another program.",
        ),
    ] = None,
    inputs: InputOption = None,
    device: DeviceOption = "cpu",
    seed: SeedOption = 0,
    train: TrainOption = False,
    rolled: Annotated[
        bool, typer.Option("--rolled", help="Draw each layer once, however often it ran.")
    ] = False,
    depth: Annotated[
        int | None,
        typer.Option(min=0, help="Open so many levels of modules; otherwise as many as stay readable."),
    ] = None,
    collapse: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Keep modules closed: one by its address, one of its calls by its label (layer:2), all of a "
            "class by its name, or all that are so many levels down. Once for each.",
        ),
    ] = None,
    hide: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Leave ops out, and let the data flow past them: those of a label, of a function (dropout), "
            "and what a module gives, by its address. Once for each.",
        ),
    ] = None,
    focus: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Draw one module, or a call of it, and what it is linked to."),
    ] = None,
    color_by: Annotated[
        ColorBy | None, typer.Option(help="Colour by an amount; otherwise by kind.", case_sensitive=False)
    ] = None,
    direction: Annotated[Direction, typer.Option(help="Where data flows.")] = Direction.DOWN,
    no_fold: Annotated[
        bool, typer.Option("--no-fold", help="Draw like modules one by one, not one of them with a count.")
    ] = False,
    program: Annotated[
        Program, typer.Option(help="What places the nodes; dot is that of an installed Graphviz.")
    ] = Program.GRAPHVIZ_PURE,
    time_limit: Annotated[
        float, typer.Option(min=0.001, metavar="SECONDS", help="How long that may take.")
    ] = 60.0,
) -> None:
    """Draw the graph of a run. What ran of a model that raises is drawn too.

    A graph that is too large to read is closed further, and the picture says how to open it.

    Exit code: 0 if the model ran through, 1 if it raised, 2 if nothing could be drawn.
    """
    if output is not None:
        refuse_ending(output)
    elif sys.stdout.isatty():
        stop("say where the picture goes, such as -o model.svg, .png, .pdf, .dot or .html", UNUSABLE)
    run = Run(inputs or [], device, seed, train)
    is_page = output is not None and output.lower().endswith(PAGES)
    trace = open_trace(subject, run, keep=None if is_page else [])  # values are for a page's statistics
    raised = error_of(trace, subject, run)
    if raised is not None and not trace.ops:
        stop(f"{raised}; nothing ran before that could be drawn", UNUSABLE)
    with _warnings_as_lines(), shown_when_long(f"drawing {output or 'the graph'}"):
        picture = trace.draw(
            output,
            rolled=rolled,
            depth=depth,
            collapse=[_module(trace, name) for name in collapse or []] or None,
            hide=_hidden(trace, hide or []) or None,
            focus=focus,
            color_by=None if color_by is None else color_by.value,
            direction=direction.value,
            fold=not no_fold,
            program=program.value,
            time_limit=time_limit,
        )
    if output is None:
        sys.stdout.buffer.write(cast("Picture", picture).dot.encode())
    end_like(trace, subject, run)


def _module(trace: tl.Trace, name: str) -> str | int:
    """A number is a number of levels, unless a module has it as its address, as a Sequential's have."""
    return int(name) if name.isdecimal() and not _is_address(trace, name) else name


def _hidden(trace: tl.Trace, names: Sequence[str]) -> list[str | Selector]:
    """What is to be hidden: the ops of the functions of these names, and what else has these names."""
    functions = {each for op in trace.ops for each in (op.func_name, op.type, op.operation)}
    found: list[str | Selector] = [tl.func(name) for name in names if name in functions]
    return [*found, *(name for name in names if name not in functions or _is_address(trace, name))]


def _is_address(trace: tl.Trace, name: str) -> bool:
    return any(name in module.addresses for module in trace.modules)


@contextmanager
def _warnings_as_lines() -> Generator[None]:
    """Give each warning a line on stderr, without the place in the code that a terminal has no use for."""
    with warnings.catch_warnings(record=True) as caught:
        yield
    for each in caught:
        typer.echo(f"torchlens: {each.message}", err=True)
