"""One op or layer with its value in numbers: statistics and a histogram."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from torchlens._trace.layer import Layer
from torchlens._trace.op import Op
from torchlens.report.amounts import quantity
from torchlens.report.details import Details, layer_details, op_details
from torchlens.report.op_facts import OpFacts, op_facts
from torchlens.report.statistics import Statistics
from torchlens.report.text import UNICODE, Printable, Symbols, fact_grid

_MOST_PASSES: Final = 12
_WIDEST_BAR: Final = 40


@dataclass(frozen=True, repr=False)
class Inspection(Printable):
    """An op or layer in all that is known about it, and its value in numbers, pass by pass.

    Holds text and numbers only, so it outlives the trace.
    """

    details: Details
    ops: tuple[OpFacts, ...]
    """One for each pass, of the first twelve."""
    num_passes: int
    """How many there are in all."""

    def parts(self, width: int, symbols: Symbols) -> Iterator[RenderableType]:
        """The facts, then the statistics: of one pass with a histogram, of several as a table."""
        yield from self.details.parts(width, symbols)
        yield ""
        if len(self.ops) > 1:
            yield _passes(self.ops, symbols)
            if self.num_passes > len(self.ops):
                yield Text(f"and {quantity(self.num_passes - len(self.ops), 'pass', 'passes')} more")
            return
        for found in self.ops:
            yield from _value(found, width, symbols)


def inspect(thing: Op | Layer) -> Inspection:
    """Read all that is known of an op, or of each pass of a layer, and the elements of the values.

    A value that was not kept has no statistics, and a reason.

    >>> import torch, torchlens as tl
    >>> trace = tl.trace(torch.nn.ReLU(), torch.tensor([-1.0, 2.0]))
    >>> tl.report.inspect(trace["relu_1"]).ops[0].statistics.maximum
    2.0
    """
    ops: Sequence[Op] = [thing] if isinstance(thing, Op) else thing.ops
    details = op_details(thing) if isinstance(thing, Op) else layer_details(thing)
    return Inspection(details, tuple(op_facts(op) for op in ops[:_MOST_PASSES]), len(ops))


def _number(number: float | None) -> str:
    """A number in six digits; empty for None."""
    return "" if number is None else f"{number:.6g}"


def _value(found: OpFacts, width: int, symbols: Symbols) -> Iterator[RenderableType]:
    if found.statistics is None:
        yield fact_grid([("statistics", f"none: {found.statistics_reason}")], symbols)
        return
    yield fact_grid(_facts(found.statistics), symbols)
    if found.statistics.histogram:
        yield ""
        yield _histogram(found.statistics, width, symbols)


def _facts(found: Statistics) -> Iterator[tuple[str, str]]:
    yield found.of.split()[-1], _counts(found)
    if found.minimum is None:
        return
    yield "range", f"{_number(found.minimum)} to {_number(found.maximum)}"
    yield "mean", _number(found.mean)
    if found.std is not None:
        yield "std", _number(found.std)
    if found.quantiles:
        parts = (f"{float(p):.0%} {_number(value)}" for p, value in found.quantiles.items())
        yield "quantiles", ", ".join(parts)


def _counts(found: Statistics) -> str:
    stored = ", those that are stored" if found.of.startswith("stored") else ""
    parts = [f"{found.count:,}{stored}", f"{found.zeros:,} zero"]
    parts.append(f"{found.nan:,} NaN")
    parts.append(f"{found.infinite:,} infinite")
    return ", ".join(parts)


def _histogram(found: Statistics, width: int, symbols: Symbols) -> Table:
    most = max(part.count for part in found.histogram)
    single = all(part.low == part.high for part in found.histogram)
    names = [(f"{part.low:.4g}", "" if single else f"to {part.high:.4g}") for part in found.histogram]
    taken = sum(max(map(len, column)) + 2 for column in zip(*names)) + len(f"{most:,}") + 2
    room = max(min(_WIDEST_BAR, width - taken), 1)
    table = Table.grid(padding=(0, 2, 0, 0))
    for justify in ("right", "right", "right", "left"):
        table.add_column(justify=justify, no_wrap=True)
    sign = "█" if symbols is UNICODE else "#"
    for (low, high), part in zip(names, found.histogram):
        bar = sign * max(round(part.count / most * room), bool(part.count))
        table.add_row(low, Text(high, style="dim"), f"{part.count:,}", Text(bar, style="cyan"))
    return table


def _passes(values: Sequence[OpFacts], symbols: Symbols) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("pass", style="green", no_wrap=True)
    for header in ("min", "mean", "max", "std", "NaN", "infinite"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("")
    for each in values:
        found = each.statistics
        if found is None:
            table.add_row(
                each.label, *[""] * 6, Text(symbols.put(f"none: {each.statistics_reason}"), style="dim")
            )
            continue
        numbers = map(_number, (found.minimum, found.mean, found.maximum, found.std))
        table.add_row(each.label, *numbers, f"{found.nan:,}", f"{found.infinite:,}", "")
    return table
