"""The exception that ended a run: what was raised, where, by which call, and what had run until then."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from torchlens._records import FailedArgument, FailedCall, Failure, SourceLine
from torchlens._trace.reader import TraceReader
from torchlens.report.amounts import quantity, shape_text
from torchlens.report.calls import reached, where
from torchlens.report.sizes import look_text
from torchlens.report.source_lines import frame_text
from torchlens.report.text import Printable, Symbols, fact_grid
from torchlens.report.torch_files import is_of_torch

_MOST_LINES: Final = 3
_MOST_ARGUMENTS: Final = 12
_MOST_OPS: Final = 5
_HEADERS: Final = ("last ops", "output", "at")
_GAP: Final = 2


@dataclass(frozen=True)
class LastOp:
    """One of the ops that ran last: its label, what it gave, and the module and line that it stands in."""

    label: str
    output: str
    place: str


@dataclass(frozen=True, repr=False)
class FailureReport(Printable):
    """The exception that ended a run, with the call that raised and the ops that ran last.

    A rich renderable that prints as text too. Holds text and numbers only, neither the exception nor a
    tensor.
    """

    failure: Failure
    facts: tuple[tuple[str, str], ...]
    """What was raised, in which module call, at which lines, by which call with which arguments."""
    last_ops: tuple[LastOp, ...]
    """The newest last."""

    @property
    def type_name(self) -> str:
        """The name of the exception's class."""
        return self.failure.type_name

    @property
    def message(self) -> str:
        """What the exception said, whole."""
        return self.failure.message

    @property
    def traceback(self) -> str:
        """The traceback as Python prints it."""
        return self.failure.traceback

    @property
    def lines(self) -> tuple[SourceLine, ...]:
        """The innermost lines that ran and are neither torch's nor Python's own, the innermost last."""
        return self.failure.lines

    @property
    def call(self) -> FailedCall | None:
        """The torch call that raised; None where the code around the calls did."""
        return self.failure.call

    def parts(self, width: int, symbols: Symbols) -> Iterator[RenderableType]:
        """The facts, then the last ops."""
        yield fact_grid(self.facts, symbols)
        if self.last_ops:
            yield ""
            yield self._table(width, symbols)

    def _table(self, width: int, symbols: Symbols) -> Table:
        rows = [(op.label, symbols.put(op.output), symbols.put(op.place)) for op in self.last_ops]
        labels, outputs, places = (max(map(cell_len, column)) for column in zip(_HEADERS, *rows))
        room = max(width - labels - outputs - 2 * _GAP, len(_HEADERS[-1]))
        table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="dim")
        for header, fitting in zip(_HEADERS, (labels, outputs, min(places, room))):
            table.add_column(header, width=fitting, no_wrap=True)
        for label, output, place in rows:
            text = Text(place, style="dim")
            if text.cell_len > room:
                text.truncate(room - cell_len(symbols.ellipsis))
                text.append(symbols.ellipsis)
            table.add_row(Text(label, style="green"), output, text)
        return table


def report_failure(reader: TraceReader) -> FailureReport | None:
    """What ended a run; None where no exception did."""
    failure = reader.record.failure
    if failure is None:
        return None
    count = len(reader.numbers.rows)
    ops = tuple(_last_op(reader, op) for op in range(max(0, count - _MOST_OPS), count))
    return FailureReport(failure, tuple(_facts(reader, failure)), ops)


def _facts(reader: TraceReader, failure: Failure) -> Iterator[tuple[str, str]]:
    first = failure.message.strip().partition("\n")[0]
    yield "raised", f"{failure.type_name}: {first}" if first else failure.type_name
    if failure.module_call:
        call = reader.record.module_calls[failure.module_call]
        module = reader.record.modules[call.module]
        label = reader.call_labels[failure.module_call]
        hook = "a hook of " if failure.in_hook else ""
        yield "in", f"{hook}{where(module.addresses[0], module.type_name)}, call {label}"
    for at, line in enumerate(reversed(failure.lines[-_MOST_LINES:])):
        yield "" if at else "at", ("from " if at else "") + _line(line)
    if failure.call is not None:
        yield from _call(reader, failure.call)


def _line(line: SourceLine) -> str:
    place = f"{_relative(line.file)}:{line.line} in {line.function}"
    return f"{place}: {line.text}" if line.text else place


def _relative(file: str) -> str:
    """The path as it would be typed from here."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def _call(reader: TraceReader, call: FailedCall) -> Iterator[tuple[str, str]]:
    name = reached(call.func_name, call.composites)
    yield "call", name + (f", which raised {call.raised}" if call.raised else "")
    for argument in call.arguments[:_MOST_ARGUMENTS]:
        yield "", f"  {argument.position}: {_argument(reader, argument)}"
    rest = len(call.arguments) + call.more_arguments - _MOST_ARGUMENTS
    if rest > 0:
        yield "", f"  and {quantity(rest, 'argument')} more"


def _argument(reader: TraceReader, argument: FailedArgument) -> str:
    if argument.dtype is None:
        return argument.text
    shape = "of no shape" if argument.shape is None else shape_text(argument.shape)
    seen = f"{shape} {argument.dtype} {argument.device}"
    if argument.made is not None:
        row, slot = argument.made
        return f"{seen}, {reader.op_labels[reader.numbers.first[row] + slot]}"
    return f"{seen}, parameter {argument.param}" if argument.param else f"{seen}, of no recorded op"


def _last_op(reader: TraceReader, op: int) -> LastOp:
    row, slot = reader.numbers.rows[op], reader.numbers.slots[op]
    seen = reader.values.geometry(reader.tensor(row, slot), row, after=True)
    module = reader.record.module_calls[reader.rows.call[row]].module
    address = reader.record.modules[module].addresses[0]
    return LastOp(
        reader.op_labels[op], look_text(seen), ": ".join(filter(None, [address, _place(reader, row)]))
    )


def _place(reader: TraceReader, row: int) -> str:
    """The innermost line of the call that is not torch's, if there is one."""
    frames = reader.frames(row)
    if not frames:
        return ""
    frame = next((each for each in reversed(frames) if not is_of_torch(each.file)), frames[-1])
    return frame_text(frame)
