"""The rules that every record keeps, whatever model it is of. Each rule yields what breaks it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias, cast

from torchlens._replay.pieces import Pieces
from torchlens._trace.reader import TraceReader
from torchlens._values.geometry import region_of, shape_of, storage_key
from torchlens._values.ghost import Recorded
from torchlens._values.lineage import HOST, positions
from torchlens._values.plain import recorded_in
from torchlens._values.region import last_writers
from torchlens.validation.findings import Finding, Tally

Rule: TypeAlias = Callable[[TraceReader], Iterator[Finding]]


def check_invariants(reader: TraceReader) -> Tally:
    """Check each rule of `RULES`; a rule that holds counts as one thing checked."""
    tally = Tally()
    for rule in RULES:
        broken = list(rule(reader))
        tally.failed += broken
        tally.checked += not broken
    return tally


def edges_lead_back(reader: TraceReader) -> Iterator[Finding]:
    """An op's parents are older than the op, so that the graph has no cycle."""
    for op, parents in enumerate(reader.parents):
        for parent in parents:
            if not 0 <= reader.numbers.rows[parent] < reader.numbers.rows[op]:
                text = f"has {reader.op_labels[parent]} as a parent, which is not older than it"
                yield Finding(reader.op_labels[op], text)


def inputs_have_origins(reader: TraceReader) -> Iterator[Finding]:
    """Each tensor that enters a call comes from an op or is a parameter."""
    rows = reader.rows
    for row in range(len(rows)):
        known = {position for op in reader.ops_of_row(row) for position, _ in reader.lineage.parents[op]}
        known |= {position for position, _ in reader.lineage.params[row]}
        for position, tensor in positions(rows.args[row], rows.kwargs[row]):
            if position not in known and 0 not in shape_of(tensor):
                label = reader.op_labels[reader.numbers.first[row]]
                yield Finding(label, f"argument {position} comes from no op and is no parameter")


def edges_carry_elements(reader: TraceReader) -> Iterator[Finding]:
    """Each parent stands at a tensor argument and gave some of the elements that are read of it."""
    rows, numbers = reader.rows, reader.numbers
    pieces = Pieces(reader)
    for op, edges in enumerate(reader.lineage.parents):
        row = numbers.rows[op]
        taken = dict(positions(rows.args[row], rows.kwargs[row]))
        behind: dict[str, list[int]] = {}
        for position, parent in edges:
            behind.setdefault(position, []).append(parent)
        for position, parents in behind.items():
            if position == HOST:
                continue
            if position not in taken:
                yield Finding(reader.op_labels[op], f"has a parent at {position}, where no tensor is")
                continue
            seen = reader.values.geometry(taken[position], row, after=False)
            for parent in _hidden(pieces, parents, seen):
                text = f"has {reader.op_labels[parent]} as a parent at {position}, of which it reads nothing"
                yield Finding(reader.op_labels[op], text)


def _hidden(pieces: Pieces, parents: list[int], seen: Recorded) -> Iterator[int]:
    """Those of several parents that newer ones hide, that lie in another storage, or that wrote nothing.

    The oldest may have written nothing: it made the tensor.
    """
    if len(parents) < 2:
        return
    key = storage_key(seen)
    made = min(parents)
    yield from (parent for parent in parents if parent != made and not pieces.written_places(parent, key))
    newest_first = sorted(parents, reverse=True)
    places = [(parent, place) for parent in newest_first for place in pieces.places(parent, key)]
    on_it = [(parent, place) for parent, place in places if storage_key(place) == key]
    found, _ = last_writers(region_of(seen), [region_of(place) for _, place in on_it])
    visible = {on_it[at][0] for at in found}
    yield from (parent for parent in parents if parent not in visible)


def rows_are_of_their_kind(reader: TraceReader) -> Iterator[Finding]:
    """A call has a function; an input or source has a name, and was computed from nothing."""
    rows = reader.rows
    for row, (kind, func, args) in enumerate(zip(rows.kind, rows.func, rows.args)):
        named = isinstance(func, str)
        if kind in ("input", "source") and (not named or args):
            found = "has a function or arguments"
        elif kind == "call" and named:
            found = "has no function"
        elif kind in ("buffer", "output") and (not named or len(args) > 1):
            found = "was not made of one tensor"
        else:
            continue
        label = reader.op_labels[reader.numbers.first[row]]
        yield Finding(label, f"is said to be of kind {kind!r} and {found}")


def buffers_have_their_versions(reader: TraceReader) -> Iterator[Finding]:
    """Each buffer version belongs to the one buffer that bears its name."""
    rows = reader.rows
    owners = {row: buffer for buffer in reader.record.buffers for row in buffer.rows}
    for row, kind in enumerate(rows.kind):
        if kind == "buffer" and (row not in owners or rows.func[row] not in owners[row].addresses):
            label = reader.op_labels[reader.numbers.first[row]]
            yield Finding(label, f"is a version of {rows.func[row]!r}, and no buffer of that name lists it")
    for row, buffer in owners.items():
        if rows.kind[row] != "buffer":
            yield Finding(buffer.addresses[0], f"lists row {row} as a version, which is none")


def passes_are_gapless(reader: TraceReader) -> Iterator[Finding]:
    """The passes of a layer are numbered from 1 without a gap, in capture order."""
    layering = reader.layering
    for layer in layering.layers:
        numbers = [layering.pass_of[op] for op in layer.ops]
        if numbers != list(range(1, len(numbers) + 1)) or layer.ops != sorted(layer.ops):
            yield Finding(layer.label, f"its passes are numbered {numbers}")
    counted = sum(len(layer.ops) for layer in layering.layers)
    if counted != len(reader.numbers.rows):
        yield Finding("layers", f"they hold {counted} passes, there are {len(reader.numbers.rows)} ops")


def labels_are_unique(reader: TraceReader) -> Iterator[Finding]:
    """No two ops and no two layers have one label."""
    for labels in (reader.op_labels, [layer.label for layer in reader.layering.layers]):
        seen: set[str] = set()
        for label in labels:
            if label in seen:
                yield Finding(label, "two things have this label")
            seen.add(label)


def layers_are_of_one_sort(reader: TraceReader) -> Iterator[Finding]:
    """The passes of a layer ran in one module, gave the same output slot and are of one kind."""
    rows, numbers = reader.rows, reader.numbers
    for layer in reader.layering.layers:
        sorts = {
            (
                reader.record.module_calls[rows.call[numbers.rows[op]]].module,
                numbers.slots[op],
                rows.kind[numbers.rows[op]],
            )
            for op in layer.ops
        }
        if len(sorts) > 1:
            yield Finding(layer.label, "its passes differ in module, output slot or kind")


def module_calls_nest(reader: TraceReader) -> Iterator[Finding]:
    """A module call lies within the call that made it."""
    calls = reader.record.module_calls
    last = len(reader.rows)
    for at, call in enumerate(calls):
        if not at:
            continue
        label, end = reader.call_labels[at], last if call.end is None else call.end
        if not 0 <= call.parent < at:
            yield Finding(label, f"is made by call {call.parent}, which is not older than it")
            continue
        outer = calls[call.parent]
        outer_end = last if outer.end is None else outer.end
        if not outer.start <= call.start <= end <= outer_end:
            yield Finding(label, f"runs from row {call.start} to {end}, outside the call around it")


def module_calls_are_gapless(reader: TraceReader) -> Iterator[Finding]:
    """The calls of a module are numbered from 1 without a gap."""
    for module, calls in enumerate(reader.module_calls_of):
        numbers = [reader.record.module_calls[call].number for call in calls]
        if numbers != list(range(1, len(numbers) + 1)):
            yield Finding(reader.record.modules[module].addresses[0], f"its calls are numbered {numbers}")


def rows_lie_in_their_calls(reader: TraceReader) -> Iterator[Finding]:
    """What a module call computed was recorded while the call ran."""
    rows, calls = reader.rows, reader.record.module_calls
    for row in range(len(rows)):
        call = calls[rows.call[row]]
        end = len(rows) if call.end is None else call.end
        if rows.kind[row] in ("call", "boundary") and not call.start <= row < end:
            label = reader.op_labels[reader.numbers.first[row]]
            yield Finding(label, f"is of {reader.call_labels[rows.call[row]]}, which did not run then")


def versions_rise(reader: TraceReader) -> Iterator[Finding]:
    """Torch's version counter of a tensor never falls, and rises only by what recorded writes explain."""
    seen: dict[int, tuple[int, int]] = {}
    for row, (out, version) in enumerate(zip(reader.rows.out, reader.rows.version)):
        for tensor, count in zip(_several(out), _several(version)):
            if count is None:
                continue
            since, before = seen.get(id(tensor), (row, count))
            seen[id(tensor)] = row, count
            explained = reader.values.explained_rise(tensor, since, row)
            if not min(0, explained) <= count - before <= explained:
                label = reader.op_labels[reader.numbers.first[row]]
                text = (
                    f"its version counter went from {before} to {count}, recorded writes explain {explained}"
                )
                yield Finding(label, text)


def writes_are_of_calls(reader: TraceReader) -> Iterator[Finding]:
    """Each write into a storage belongs to a recorded call, in order, and each in-place op has its write."""
    written: set[tuple[int, int]] = set()
    for writes in reader.ledger.writes.values():
        rows = [write.row for write in writes]
        if rows != sorted(rows):
            yield Finding("writes", f"those into one storage are not in order: rows {rows}")
        for write in writes:
            if write.slot is not None:
                written.add((write.row, write.slot))
    for row, slot in sorted(reader.ledger.inplace):
        if (row, slot) not in written and row not in reader.ledger.reshaped:
            op = reader.numbers.first[row] + slot
            yield Finding(reader.op_labels[op], "is said to write in place, but no write is recorded")


def ends_are_marked(reader: TraceReader) -> Iterator[Finding]:
    """The trace's inputs and outputs are the ops of these kinds, and its output holds no other tensor."""
    record, kinds = reader.record, reader.rows.kind
    for kind, listed in (("input", record.inputs), ("output", record.outputs)):
        found = [row for row in range(len(kinds)) if kinds[row] == kind]
        if sorted(listed) != found:
            yield Finding(f"{kind}s", f"rows {sorted(listed)} are listed, rows {found} are of this kind")
    if (record.status == "failed") != (record.failure is not None):
        yield Finding("status", f"it is {record.status!r}, and the exception is {record.failure}")
    outermost = [at for at, call in enumerate(record.module_calls) if at and call.parent == 0]
    if list(record.root_calls) != outermost:
        yield Finding(
            "root calls", f"calls {list(record.root_calls)} are listed, {outermost} were made there"
        )
    if not record.is_block and record.status == "complete":
        held = [id(tensor) for tensor in recorded_in(record.output)]
        if held != [id(reader.tensor(row, 0)) for row in record.outputs]:
            yield Finding("output", "its tensors are not those of the trace's outputs")


def calls_know_their_tensors(reader: TraceReader) -> Iterator[Finding]:
    """What a module was given and what it returned are tensors of the trace."""
    known = {id(tensor) for out in reader.rows.out for tensor in _several(out)}
    known |= reader.record.structure.param_of_tensor.keys()
    known |= {id(alias) for _, alias, _ in reader.record.aliases}
    for at, call in enumerate(reader.record.module_calls):
        for tensor in recorded_in([call.args, dict(call.kwargs), call.output]):
            if id(tensor) not in known:
                yield Finding(reader.call_labels[at], "took or gave a tensor that no op has")
                break
        if call.end is not None and any(
            _is_made_later(reader, t, call.end) for t in recorded_in(call.output)
        ):
            yield Finding(reader.call_labels[at], "gave a tensor that was made after it had ended")


RULES: Final[tuple[Rule, ...]] = (
    edges_lead_back,
    inputs_have_origins,
    edges_carry_elements,
    rows_are_of_their_kind,
    buffers_have_their_versions,
    passes_are_gapless,
    labels_are_unique,
    layers_are_of_one_sort,
    module_calls_nest,
    module_calls_are_gapless,
    rows_lie_in_their_calls,
    versions_rise,
    writes_are_of_calls,
    ends_are_marked,
    calls_know_their_tensors,
)


def _is_made_later(reader: TraceReader, tensor: Recorded, row: int) -> bool:
    """Whether every call that gave a tensor came at or after a row."""
    made = reader.makers.get(id(tensor), ())
    return bool(made) and all(at >= row for at, _ in made)


def _several(value: Any) -> tuple[Any, ...]:
    """A row's outputs, or what belongs to them, as a tuple."""
    return cast("tuple[Any, ...]", value) if type(value) is tuple else (value,)
