"""`first_divergence`: the op at which two runs part, what it read in each, and what it gave."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.console import RenderableType
from torch import Tensor

from torchlens._records import SourceLine
from torchlens._trace.op import Op
from torchlens._trace.views import Views
from torchlens._values.geometry import dtype_name
from torchlens._values.tally import NoElementsError
from torchlens.comparing.alignment import Alignment, By, Pair, align
from torchlens.comparing.differences import IncomparableError
from torchlens.comparing.excess import Excess, find_excess
from torchlens.comparing.inputs import Inputs, inputs_of
from torchlens.comparing.page import divergence_parts, no_divergence_parts
from torchlens.comparing.reading import RAW, read_pair
from torchlens.comparing.tolerances import Asked, Tolerance, checked, tolerance_between
from torchlens.report.sizes import shape_of
from torchlens.report.source_lines import source_line
from torchlens.report.statistics import Statistics, statistics_of
from torchlens.report.text import Printable, Symbols


@dataclass(frozen=True, slots=True)
class Side:
    """The op at a divergence as it stands in one run."""

    label: str
    module: str
    """Address of the module it ran in; empty for the root and outside any."""
    module_type: str
    """The name of its class."""
    call_site: Sequence[SourceLine]
    """The frames from the module's forward down to the call, with the text of their lines as it is now."""
    shape: tuple[int, ...] | None
    """None for a nested tensor."""
    dtype: str
    statistics: Statistics | None
    statistics_reason: str | None
    """Why there are no statistics."""


@dataclass(frozen=True, repr=False)
class Divergence(Printable):
    """The first op whose values differ by more than the tolerance. True, and a rich renderable."""

    names: tuple[str, str]
    a: Side
    b: Side
    by: By
    """How the op was aligned: by its place in the code, or by the order of operations."""
    tolerance: Tolerance
    excess: Excess | None
    """None where the two values have different shapes."""
    inputs: Inputs
    compared: int
    """How many values were compared before it, and agree."""
    not_compared: Sequence[tuple[str, str]]
    """Label and reason of the ops before it whose values could not be compared."""
    only_in_a: Sequence[str]
    """Labels of the ops before it that the first run alone has."""
    only_in_b: Sequence[str]
    """Labels of the ops before its op in the second run that this run alone has."""

    def parts(self, width: int, symbols: Symbols) -> Iterator[RenderableType]:
        """What differs, what came before it, what it read, and both sides."""
        return divergence_parts(self, width, symbols)

    def __bool__(self) -> Literal[True]:
        return True


@dataclass(frozen=True, repr=False)
class NoDivergence(Printable):
    """No value that was compared differs by more than the tolerance. False, and a rich renderable."""

    names: tuple[str, str]
    compared: int
    not_compared: Sequence[tuple[str, str]]
    """Label and reason of the ops whose values could not be compared."""
    only_in_a: Sequence[str]
    """Labels of the ops that the first run alone has."""
    only_in_b: Sequence[str]

    def parts(self, width: int, symbols: Symbols) -> Iterator[RenderableType]:
        """How many values agree, what could not be compared, and what one run alone has."""
        return no_divergence_parts(self, width, symbols)

    def __bool__(self) -> Literal[False]:
        return False


def first_divergence(
    a: Views, b: Views, names: tuple[str, str] = ("a", "b"), tolerance: Asked = None
) -> Divergence | NoDivergence:
    """Go through the ops of both runs, in the order of the first, up to one whose values differ.

    `tolerance` is how far an element may be off: a number for absolute and relative, a pair (relative,
    absolute), None for that of the coarser dtype of the two. Values of different shapes differ; where an op
    was aligned by order only, they are taken for other ops and count as not compared.
    """
    return _Search(a, b, names, checked(tolerance)).run()


class _Search:
    """One walk over the pairs, with what was found on the way."""

    def __init__(self, a: Views, b: Views, names: tuple[str, str], asked: Asked) -> None:
        self._a, self._b, self._names, self._asked = a, b, names, asked
        self._found: Alignment = align(a, b)
        self._compared = 0
        self._agreeing: set[int] = set()
        self._skipped: list[tuple[str, str]] = []

    def run(self) -> Divergence | NoDivergence:
        for pair in self._found.pairs:
            values = read_pair(self._a, self._b, pair.a, pair.b, self._names)
            if isinstance(values, str):
                self._skip(pair, values)
                continue
            tolerance = tolerance_between(self._asked, values[0].dtype, values[1].dtype)
            try:
                excess = find_excess(*values, tolerance)
            except IncomparableError as error:
                if pair.by == "site" and shape_of(values[0]) != shape_of(values[1]):
                    return self._divergence(pair, values, tolerance, None)
                self._skip(pair, str(error))
                continue
            if excess is not None:
                return self._divergence(pair, values, tolerance, excess)
            self._compared += 1
            self._agreeing.add(pair.a)
        return NoDivergence(
            self._names, self._compared, self._skipped, *self._lone(len(self._a.every_op()), None)
        )

    def _skip(self, pair: Pair, reason: str) -> None:
        self._skipped.append((self._a.op(pair.a).label, reason))
        if reason == RAW:  # an op that fills such memory reads nothing of it
            self._agreeing.add(pair.a)

    def _divergence(
        self, pair: Pair, values: tuple[Tensor, Tensor], tolerance: Tolerance, excess: Excess | None
    ) -> Divergence:
        ours, theirs = self._a.op(pair.a), self._b.op(pair.b)
        return Divergence(
            self._names,
            _side(ours, values[0]),
            _side(theirs, values[1]),
            pair.by,
            tolerance,
            excess,
            inputs_of(ours, theirs, self._found, self._agreeing, self._asked, self._names),
            self._compared,
            self._skipped,
            *self._lone(pair.a, pair.b),
        )

    def _lone(self, before_a: int, before_b: int | None) -> tuple[list[str], list[str]]:
        """The labels of the ops of one run only, up to an op of each."""
        return (
            [self._a.op(at).label for at in self._found.only_a if at < before_a],
            [self._b.op(at).label for at in self._found.only_b if before_b is None or at < before_b],
        )


def _side(op: Op, value: Tensor) -> Side:
    lines = tuple(map(source_line, op.call_site))
    statistics, reason = None, None
    try:
        statistics = statistics_of(value)
    except NoElementsError as error:
        reason = str(error)
    return Side(
        op.label,
        op.module.address,
        op.module.type,
        lines,
        shape_of(value),
        dtype_name(value.dtype),
        statistics,
        reason,
    )
