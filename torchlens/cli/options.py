"""What several commands take."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import typer

TARGET_FORM: Final = (
    "package.module:factory or file.py:factory: a callable without arguments that returns the model, its "
    "class, or the model itself"
)
SUBJECT_FORM: Final = f"A saved trace (run.tlens, or its directory), or {TARGET_FORM}."

SubjectArgument: TypeAlias = Annotated[str, typer.Argument(metavar="SUBJECT", help=SUBJECT_FORM)]
PlainOption: TypeAlias = Annotated[bool, typer.Option("--plain", help="Plain text, without colours.")]
WidthOption: TypeAlias = Annotated[
    int | None, typer.Option(min=40, metavar="COLUMNS", help="Width of the output; otherwise the terminal's.")
]
JsonOption: TypeAlias = Annotated[
    bool, typer.Option("--json", help="JSON on stdout instead; docs/cli.md has its keys.")
]
InputOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        metavar="SPEC",
        help="One input, as [NAME=]SIZES[:DTYPE[:LOW..HIGH]], filled at random: 1,3,224,224 for floats; "
        "1,32:int64:0..50257 for token ids below a vocabulary of 50257 (without a range: 0 or 1); "
        "mask=1,32:bool for a keyword argument. Once for each input.",
    ),
]
DeviceOption: TypeAlias = Annotated[
    str, typer.Option(help="Where the model and its inputs live: cpu, cuda:0, mps.")
]
SeedOption: TypeAlias = Annotated[
    int, typer.Option(min=0, help="For the weights, the inputs and the forward.")
]
TrainOption: TypeAlias = Annotated[bool, typer.Option("--train/--eval", help="The mode the model runs in.")]
