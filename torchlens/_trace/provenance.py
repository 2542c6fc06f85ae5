"""Whether a trace can vouch for its graph, and every reason for which it can't."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torchlens._records import Census, ReasonName
from torchlens._trace.reader import TraceReader

_MOST_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Doubt:
    """One reason for which a trace is unverified."""

    name: ReasonName
    text: str
    """What was found, in one sentence."""
    count: int
    ops: tuple[str, ...]
    """Labels of the ops it was found at; empty where it concerns none in particular."""

    def __str__(self) -> str:
        shown = ", ".join(self.ops[:_MOST_SHOWN]) + (", ..." if len(self.ops) > _MOST_SHOWN else "")
        times = f", {self.count} times" if self.count > 1 else ""
        return f"({self.name}{times}): {self.text}" + (f" At {shown}." if shown else "")


@dataclass(frozen=True, slots=True)
class Provenance:
    """Whether every tensor's origin was seen, and every write explained.

    >>> import torch, torchlens as tl
    >>> trace = tl.trace(lambda x: x + torch.Tensor([1.0]), torch.ones(1))
    >>> trace.provenance.verified, trace.provenance.verification_reason
    (False, 'unknown_origin')
    >>> trace.provenance.reasons[0].ops
    ('source_1:1',)
    """

    reasons: tuple[Doubt, ...]
    """All reasons, in the order in which they came up."""
    census: Census | None
    """What the witness counted; None where it was not asked for."""

    @property
    def verified(self) -> bool:
        return not self.reasons

    @property
    def verification_reason(self) -> ReasonName | None:
        """The name of the first reason; None when verified."""
        return self.reasons[0].name if self.reasons else None

    def lines(self) -> Iterator[str]:
        """One line for each reason."""
        return map(str, self.reasons)

    def __str__(self) -> str:
        return "\n".join(f"unverified {line}" for line in self.lines()) or "verified"


def find_provenance(reader: TraceReader) -> Provenance:
    """What a record says of itself."""
    found = [
        Doubt(reason.name, reason.text, reason.count, _labels(reader, reason.rows))
        for reason in reader.record.reasons
    ]
    return Provenance(tuple(found), reader.record.census)


def _labels(reader: TraceReader, rows: Sequence[int]) -> tuple[str, ...]:
    first = reader.numbers.first
    return tuple(reader.op_labels[first[row]] for row in rows)
