"""Putting things on stdout: renderables as text or in colours, and JSON."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar, Protocol, TypeAlias

import typer
from rich.console import Console, RenderableType

from torchlens.report.text import as_text


class Fielded(Protocol):
    """A dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


Data: TypeAlias = "str | int | float | complex | bool | Sequence[Data] | Mapping[str, Data] | Fielded | None"


def show(shown: RenderableType, *, plain: bool, width: int | None) -> None:
    """Print a renderable: in colours on a terminal, as text elsewhere."""
    console = Console(width=width, highlight=False)
    if console.is_terminal and not plain:
        console.print(shown)
    else:
        typer.echo(as_text(shown, console.width, encoding=sys.stdout.encoding))


def show_json(data: Data) -> None:
    """Print plain data as valid JSON: numbers that JSON lacks are the strings NaN, Infinity and -Infinity."""
    typer.echo(json.dumps(_plain(data), indent=2, allow_nan=False))


def _plain(data: Data) -> Data:
    if isinstance(data, float):
        return spelled(data)
    if isinstance(data, complex):
        return {"real": spelled(data.real), "imag": spelled(data.imag)}
    if is_dataclass(data):
        return {each.name: _plain(getattr(data, each.name)) for each in fields(data)}
    if isinstance(data, Mapping):
        return {name: _plain(value) for name, value in data.items()}
    if isinstance(data, Sequence) and not isinstance(data, str):
        return [_plain(value) for value in data]
    return data


def spelled(number: float) -> float | str:
    """A number as JSON can have it."""
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
