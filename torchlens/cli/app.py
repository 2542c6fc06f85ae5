"""The program: its commands, and how it ends where a request can't be met."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from torchlens._version import __version__
from torchlens.cli.commands.compare import compare
from torchlens.cli.commands.demo import demo
from torchlens.cli.commands.doctor import doctor
from torchlens.cli.commands.draw import draw
from torchlens.cli.commands.export import export
from torchlens.cli.commands.save import save
from torchlens.cli.commands.show import show
from torchlens.cli.commands.summary import summary
from torchlens.cli.ending import UNUSABLE, stop
from torchlens.errors import TorchLensError

_ABOUT = """\
See every operation a PyTorch model runs.

A SUBJECT is a saved trace (a path that ends in .tlens, or the directory of one) or a target: the model that
a callable without arguments gives, as package.module:factory or file.py:factory, run once on --input.

Exit codes: 0 all is well; 1 the model raised, the runs differ, or something is refused; 2 the request cannot
be met, with the reason on stderr.
"""
_EXAMPLE = "Example: torchlens summary file.py:factory --input 1,3,224,224"


class _Commands(TyperGroup):
    """Ends with one line and an exit code where the library says why a request can't be met."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except TorchLensError as error:
            stop(str(error), UNUSABLE)


app = typer.Typer(
    cls=_Commands,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"torchlens {__version__}")
        raise typer.Exit


@app.callback(help=_ABOUT, epilog=_EXAMPLE)
def commands(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the release.")
    ] = False,
) -> None:
    """Say what the program is for: the help has its text."""


app.command(epilog="Example: torchlens demo")(demo)
app.command(epilog="Example: torchlens summary file.py:factory --input 1,32:int64:0..50257 --depth 2")(
    summary
)
app.command(epilog="Example: torchlens save file.py:factory --input 1,3,224,224 -o run.tlens")(save)
app.command(epilog="Example: torchlens show run.tlens relu_1:2")(show)
app.command(epilog="Example: torchlens draw file.py:factory --input 1,3,224,224 --rolled -o model.svg")(draw)
app.command(epilog="Example: torchlens compare before.tlens after.tlens")(compare)
app.command(epilog="Example: torchlens export run.tlens --table layers -o layers.parquet")(export)
app.command(epilog="Example: torchlens doctor file.py:factory --input 1,3,224,224 --markdown")(doctor)


def main() -> None:
    """Run the command line."""
    app()
