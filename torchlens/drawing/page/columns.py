"""What the page knows of ops, places in the code and modules: columns of numbers and of shared strings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from torchlens._records import SourceLine
from torchlens._trace.op import Op
from torchlens.drawing.page.families import FAMILIES, family_number
from torchlens.drawing.quantities import Quantity
from torchlens.report.amounts import shape_text
from torchlens.report.op_facts import OpFacts, op_facts
from torchlens.report.statistics import Statistics

Plain: TypeAlias = "int | float | str | bool | Sequence[Plain] | Mapping[str, Plain] | None"

_DIGITS = 5
"""Of a statistic."""


class Pool:
    """Values written once and named by their number."""

    def __init__(self) -> None:
        self.values: list[Plain] = []
        self._numbers: dict[object, int] = {}

    def number(self, key: object, value: Plain) -> int:
        """The number of a value, by a key that is equal for equal ones."""
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.values)
            self.values.append(value)
        return found


class Columns:
    """Facts of the ops that are asked for, each op once."""

    def __init__(self, *, statistics: bool, own: Quantity | None = None) -> None:
        """`own`: what the page can be colored by besides what every page can."""
        self._with_statistics = statistics
        self._own = own
        self._strings = Pool()
        self._lists = Pool()
        self._frames = Pool()
        self._sites = Pool()
        self._ops: dict[Op, int] = {}
        self._rows: list[list[Plain]] = []

    def text(self, text: str | None) -> int:
        """The number of a string; -1 for None."""
        if text is None:
            return -1
        # a lone surrogate, which file names may hold, cannot be written as UTF-8
        return self._strings.number(text, text.encode("utf-8", "backslashreplace").decode())

    def texts(self, texts: Iterable[str]) -> int:
        """The number of a list of strings."""
        numbers = [self.text(text) for text in texts]
        return self._lists.number(tuple(numbers), [*numbers])

    def op(self, op: Op) -> int:
        """The number of an op's row."""
        found = self._ops.get(op)
        if found is None:
            found = self._ops[op] = len(self._rows)
            facts = op_facts(op, statistics=self._with_statistics)
            self._rows.append([*self._row(facts, op.name), self._own_value(op), family_number(op.type)])
        return found

    def written(self) -> dict[str, Plain]:
        """All of it, the ops column by column."""
        columns: list[Plain] = [list(column) for column in zip(*self._rows)]
        return {
            "strings": self._strings.values,
            "lists": self._lists.values,
            "frames": self._frames.values,
            "sites": self._sites.values,
            "families": FAMILIES,
            "ops": dict(zip(_NAMES, columns or [[] for _ in _NAMES])),
        }

    def _row(self, facts: OpFacts, name: str | None) -> list[Plain]:
        shape = shape_text(facts.shape)
        words = (facts.label, name, facts.kind, facts.type, facts.func_name, shape, facts.dtype, facts.device)
        return [
            *map(self.text, words),
            facts.nbytes,
            self.text(facts.module_call),
            self.texts(facts.params),
            self.texts(facts.buffers),
            self._site(facts.call_site),
            facts.flops,
            self.text(facts.flops_reason),
            facts.duration_ns,
            None if facts.statistics is None else _numbers(facts.statistics),
            self.text(facts.statistics_reason),
        ]

    def _own_value(self, op: Op) -> Plain:
        """A number, or a word's number in a list."""
        value = None if self._own is None else self._own.of_ops([op])
        return [self.text(value)] if isinstance(value, str) else rounded(value)

    def _site(self, lines: tuple[SourceLine, ...]) -> int:
        frames = [self._frame(line) for line in lines]
        return self._sites.number(tuple(frames), [*frames])

    def _frame(self, line: SourceLine) -> int:
        row: list[Plain] = [self.text(line.file), line.line, self.text(line.function), self.text(line.text)]
        return self._frames.number(line, row)


_NAMES = (
    *("label", "name", "kind", "type", "func", "shape", "dtype", "device", "bytes", "call", "params"),
    *("buffers", "site", "flops", "flopsReason", "time", "statistics", "reason", "own", "family"),
)


def _numbers(found: Statistics) -> list[Plain]:
    """Counts, moments, three quantiles, then the histogram: lowest, highest, whether by number, counts."""
    counts = [found.count, found.nan, found.positive_infinity, found.negative_infinity, found.zeros]
    moments = [found.minimum, found.maximum, found.mean, found.std]
    quantiles = [found.quantiles.get(name) for name in ("0.05", "0.5", "0.95")]
    bins = found.histogram
    shape: list[Plain] = []
    if bins:
        by_number = bins[0].low == bins[0].high
        shape = [rounded(bins[0].low), rounded(bins[-1].high), int(by_number), *(part.count for part in bins)]
    return [*counts, *map(rounded, (*moments, *quantiles)), shape]


def rounded(number: float | None) -> float | int | None:
    """With few digits; what is not finite, which JSON does not have, as None."""
    if number is None or not math.isfinite(number):
        return None
    short = float(f"{number:.{_DIGITS}g}")
    return int(short) if short.is_integer() and abs(short) < 1e9 else short
