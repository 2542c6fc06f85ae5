"""The commands."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer
from rich.console import Console, RenderableType

import torchlens as tl
from torchlens.cli.inputs import InputSpec, random_tensor
from torchlens.cli.target import build_model, build_object, usable_device
from torchlens.errors import TargetError, TorchLensError
from torchlens.report.text import as_text

if TYPE_CHECKING:
    import torch
    from torch import nn

_BAD_REQUEST: Final = 2
_MODEL_RAISED: Final = 1
_REFUSED: Final = 1
_TARGET: Final = (
    "package.module:factory or file.py:factory: a callable without arguments that returns the model, its "
    "class, or the model itself."
)
_DEMO: Final = ("torchlens.demo:Demo", "2,6:int64:0..20")
_GO_ON: Final = """\
Go on in Python:

  import torch, torchlens as tl
  from torchlens.demo import Demo

  trace = tl.trace(Demo(), torch.randint(0, 20, (2, 6)))

  trace["tanh_1"].num_passes         # 6: the loop ran that line six times
  trace["tanh_1:3"].out              # the value at the third step
  trace["tanh_1:3"].parents          # what it was computed from
  trace["tanh_1:3"].call_site[-1]    # the line of code that called it
  trace["add_1"].ops                 # two passes: the block ran twice
  trace.modules["block"].calls       # its calls, with what went in and came out
  trace.graph                        # all ops, as a networkx.DiGraph

Your own model: tl.trace(model, x), or without Python code

  torchlens summary package.module:factory --input 1,3,224,224
  torchlens summary file.py:factory --input 1,32:int64:0..50257
"""

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="See every operation a PyTorch model runs.",
)

PlainOption = Annotated[bool, typer.Option("--plain", help="Plain text, without colours.")]
WidthOption = Annotated[
    int | None, typer.Option(min=40, metavar="COLUMNS", help="Width of the output; otherwise the terminal's.")
]
InputOption = Annotated[
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
DeviceOption = Annotated[str, typer.Option(help="Where the model and its inputs live: cpu, cuda:0, mps.")]
TrainOption = Annotated[bool, typer.Option("--train/--eval", help="The mode the model runs in.")]


@dataclass(frozen=True)
class _Look:
    """How a summary is shown."""

    plain: bool
    width: int | None
    depth: int | None = None
    full: bool = False


@app.callback()
def commands() -> None:
    """See every operation a PyTorch model runs."""


@app.command()
def demo(plain: PlainOption = False, width: WidthOption = None) -> None:
    """Trace a small model and say how to go on."""
    target, text = _DEMO
    _summarize(target, [text], device="cpu", seed=0, train=False, look=_Look(plain, width))
    typer.echo(f"\n{_GO_ON}", nl=False)


@app.command()
def summary(
    target: Annotated[str, typer.Argument(metavar="TARGET", help=_TARGET)],
    inputs: InputOption = None,
    device: DeviceOption = "cpu",
    seed: Annotated[int, typer.Option(min=0, help="For the weights, the inputs and the forward.")] = 0,
    train: TrainOption = False,
    depth: Annotated[
        int | None, typer.Option(min=0, help="Open the tree to so many modules below the root.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Give every layer its row.")] = False,
    plain: PlainOption = False,
    width: WidthOption = None,
) -> None:
    """Run a model once and print its modules, layers and cost."""
    look = _Look(plain, width, depth, full)
    _summarize(target, inputs or [], device=device, seed=seed, train=train, look=look)


@app.command(
    epilog="Example: torchlens doctor file.py:factory --input 1,3,224,224 --markdown",
)
def doctor(
    target: Annotated[
        str | None,
        typer.Argument(metavar="TARGET", help=f"{_TARGET} Without it, only the environment is looked at."),
    ] = None,
    inputs: InputOption = None,
    device: DeviceOption = "cpu",
    train: TrainOption = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="A Markdown table, for an issue.")] = False,
    plain: PlainOption = False,
    width: WidthOption = None,
) -> None:
    """Say what about a model, its inputs and this environment is refused, limited or not tested.

    The model is built, and not run. Exit code: 0 if nothing is refused, 1 if something is, 2 for a target
    or an input that cannot be used.
    """
    model: object = None
    args: tuple[Any, ...] | None = None
    kwargs: dict[str, Any] = {}
    if target is not None:
        try:
            specs = [InputSpec.parse(text) for text in inputs or []]
            model, args, kwargs = _prepare_any(target, specs, device, train=train)
        except TorchLensError as refused:
            _stop(str(refused), _BAD_REQUEST)
    elif inputs:
        _stop("--input describes the inputs of a TARGET, and none is given", _BAD_REQUEST)
    page = tl.report.doctor(model, args, input_kwargs=kwargs)
    if markdown:
        typer.echo(page.to_markdown())
    else:
        _show(page, plain=plain, width=width)
    if not page:
        raise typer.Exit(_REFUSED)


def main() -> None:
    """Run the command line."""
    app()


def _summarize(target: str, texts: list[str], *, device: str, seed: int, train: bool, look: _Look) -> None:
    try:
        specs = [InputSpec.parse(text) for text in texts]
        model, args, kwargs = _prepare(target, specs, device, seed)
        model.train(train)
        trace, error = _run(model, args, kwargs, seed)
    except TorchLensError as refused:
        _stop(str(refused), _BAD_REQUEST)
    _print(trace, look)
    if error is not None:
        hint = "" if texts else "; --input gives it inputs"
        _stop(f"the model raised {type(error).__name__}: {error}{hint}", _MODEL_RAISED)


def _prepare(
    target: str, specs: list[InputSpec], device: str, seed: int
) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    import torch

    place = usable_device(device)
    torch.manual_seed(seed)
    model = build_model(target)
    _move(model, place)
    return model, *_random_inputs(specs, place)


def _prepare_any(
    target: str, specs: list[InputSpec], device: str, *, train: bool
) -> tuple[object, tuple[Any, ...] | None, dict[str, Any]]:
    """What a target gives, be it a model or not, and its inputs as the doctor takes them."""
    import torch

    place = usable_device(device)
    model = build_object(target)
    if isinstance(model, torch.nn.Module):
        _move(model, place)
        model.train(train)
    args, kwargs = _random_inputs(specs, place)
    return model, args if specs else None, kwargs


def _move(model: nn.Module, place: torch.device) -> None:
    try:
        model.to(place)
    except (RuntimeError, NotImplementedError) as error:
        raise TargetError(f"the model cannot be moved to {str(place)!r}: {error}") from error


def _random_inputs(specs: list[InputSpec], place: torch.device) -> tuple[tuple[Any, ...], dict[str, Any]]:
    args = tuple(random_tensor(spec, place) for spec in specs if spec.name is None)
    return args, {spec.name: random_tensor(spec, place) for spec in specs if spec.name is not None}


def _run(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], seed: int
) -> tuple[tl.Trace, Exception | None]:
    """The trace of one forward, and what the model raised."""
    trace: tl.Trace | None = None
    error: Exception | None = None
    try:
        with tl.capture(model, capture=tl.options.CaptureOptions(seed=seed)) as trace:
            model(*args, **kwargs)
    except TorchLensError:
        raise
    except Exception as raised:  # noqa: BLE001  whatever the model raises is told
        error = raised
    assert trace is not None
    return trace, error


def _print(trace: tl.Trace, look: _Look) -> None:
    shown: Any = trace.summary()
    _show(replace(shown, depth=look.depth, fold=not look.full), plain=look.plain, width=look.width)


def _show(shown: RenderableType, *, plain: bool, width: int | None) -> None:
    console = Console(width=width, highlight=False)
    if console.is_terminal and not plain:
        console.print(shown)
    else:
        typer.echo(as_text(shown, console.width, encoding=sys.stdout.encoding))


def _stop(message: str, code: int) -> NoReturn:
    typer.echo(f"torchlens: {' '.join(message.split())}", err=True)
    raise typer.Exit(code)
