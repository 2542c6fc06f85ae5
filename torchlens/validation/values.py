"""Every recorded call again: does it give the recorded value, and does that depend on each parent?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor, nn

from torchlens._replay.rerun import CannotReplayError, Replay, Replayed
from torchlens._replay.settings import untouched_generators
from torchlens._trace.reader import TraceReader
from torchlens._values.plain import tensors_in
from torchlens.errors import MissingValueError, UnreadableError
from torchlens.validation.comparison import difference, is_close, is_equal, is_same
from torchlens.validation.findings import Finding, Tally
from torchlens.validation.perturbation import perturbed

_MOST_PARENTS = 16
"""Of a call with more parents, as a `cat` of hundreds, so many are moved: each takes a run of the call."""
_VARIES = "made twice from the same inputs, it gives two values, and no random state was recorded for it"
_OF_A_KIND = "made again, it gives something else; a {} among its tensors decides itself what a call does"
_NO_BITS = "values on meta have no bits; dtype and shape agree"


def check_values(reader: TraceReader) -> Tally:
    """Make each recorded call again on its recorded inputs and compare what it gives.

    Counts ops: calls, boundary ops, buffer versions and outputs. Inputs, parameters, sources and the starting
    values of buffers are where the data comes from, and nothing says what they ought to be.
    """
    checker = _Checker(reader, Replay(reader), Tally())
    with untouched_generators():
        for row in range(len(reader.rows)):
            if is_computed(reader, row):
                checker.check(row)
    return checker.tally


def is_computed(reader: TraceReader, row: int) -> bool:
    """Whether a row's value was computed from others."""
    kind = reader.rows.kind[row]
    return kind in ("call", "boundary", "output") or (kind == "buffer" and bool(reader.rows.args[row]))


@dataclass(slots=True)
class _Checker:
    reader: TraceReader
    replay: Replay
    tally: Tally

    def check(self, row: int) -> None:
        labels = [self.reader.op_labels[op] for op in self.reader.ops_of_row(row)]
        try:
            expected = self._recorded(row)
            replayed = self.replay.run(row)
            apart = list(self._differences(row, expected, replayed))
        except (CannotReplayError, UnreadableError) as reason:
            shared = reason.reason if isinstance(reason, MissingValueError) else None
            self.tally.unchecked += [Finding(label, str(reason), shared) for label in labels]
            return
        except Exception as error:  # noqa: BLE001 - a call made on wrong inputs may raise anything
            kind = self._subclass_in(row)
            text = f"made again, it raised {type(error).__name__}: {error}"
            where = self.tally.unchecked if kind else self.tally.failed
            where += [Finding(label, _OF_A_KIND.format(kind) if kind else text) for label in labels]
            return
        if apart and self._varies(row, replayed):
            if len(expected) == len(replayed.outs) and all(map(is_close, expected, replayed.outs)):
                apart = []
            else:
                self.tally.unchecked += [Finding(label, _VARIES) for label in labels]
                return
        if apart and (kind := self._subclass_in(row)):
            self.tally.unchecked += [Finding(label, _OF_A_KIND.format(kind)) for label in labels]
        elif apart:
            self.tally.failed += apart
        elif any(tensor.is_meta for tensor in expected):
            self.tally.unchecked += [Finding(label, _NO_BITS) for label in labels]
        else:
            self.tally.checked += len(labels)
            self._look_for_what_does_not_move(row, replayed)

    def _subclass_in(self, row: int) -> str | None:
        """The class of a tensor that the call took or gave and that answers torch's calls itself."""
        rows = self.reader.rows
        for tensor in tensors_in([rows.args[row], rows.kwargs[row] or {}, rows.out[row]]):
            if type(tensor) not in (Tensor, nn.Parameter):
                return type(tensor).__name__
        return None

    def _recorded(self, row: int) -> list[Tensor]:
        return [self._value(op) for op in self.reader.ops_of_row(row)]

    def _differences(self, row: int, expected: list[Tensor], replayed: Replayed) -> Iterator[Finding]:
        reader = self.reader
        labels = [reader.op_labels[op] for op in reader.ops_of_row(row)]
        if len(replayed.outs) != len(expected):
            text = f"made again, it gives {len(replayed.outs)} tensors instead of {len(expected)}"
            yield Finding(labels[0], text)
            return
        for label, recorded, found in zip(labels, expected, replayed.outs):
            if (apart := difference(recorded, found)) is not None:
                yield Finding(label, f"made again on its recorded inputs, it gives another value: {apart}")
        if replayed.wrote_unannounced:
            yield Finding(labels[0], "it writes into an argument, and the record does not say so")
        for written in replayed.written:
            what = f"what {labels[0]} wrote"
            recorded = reader.values.read(written.place, row, after=True, what=what)
            if (apart := difference(recorded, written.value)) is not None:
                yield Finding(labels[0], f"made again, it writes another value: {apart}")

    def _varies(self, row: int, replayed: Replayed) -> bool:
        """Whether a call gives other bits each time it is made."""
        try:
            again = self.replay.run(row)
        except Exception:  # noqa: BLE001 - once more, what a call raises can be anything
            return False
        return not all(map(is_same, replayed.outs, again.outs))

    def _look_for_what_does_not_move(self, row: int, replayed: Replayed) -> None:
        reader = self.reader
        parents = self.replay.parents(row)
        if len(parents) > _MOST_PARENTS:
            text = f"of its {len(parents)} parents only the first {_MOST_PARENTS} were moved"
            self.tally.advice.append(Finding(reader.op_labels[reader.numbers.first[row]], text))
        for parent in parents[:_MOST_PARENTS]:
            try:
                other = perturbed(self._value(parent))
                if other is None:
                    continue
                before, after = _all_of(replayed), _all_of(self.replay.run(row, {parent: other}))
                is_moved = len(after) != len(before) or not all(map(is_equal, before, after))
            except Exception:  # noqa: BLE001 - the value is gone, or the call cannot take another one
                continue
            if not is_moved:
                op = reader.op_labels[reader.numbers.first[row]]
                text = f"does not move when {reader.op_labels[parent]} does"
                self.tally.advice.append(Finding(op, text))

    def _value(self, op: int) -> Tensor:
        reader = self.reader
        row, slot = reader.numbers.rows[op], reader.numbers.slots[op]
        return reader.values.read(reader.tensor(row, slot), row, after=True, what=reader.op_labels[op])


def _all_of(replayed: Replayed) -> list[Tensor]:
    return [*replayed.outs, *(written.value for written in replayed.written)]
