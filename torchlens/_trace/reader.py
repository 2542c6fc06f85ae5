"""The one place that knows how to read a record: everything is computed on first use, once."""

from __future__ import annotations

from functools import cached_property
from typing import Any, cast

from torchlens import flops
from torchlens._keys.chains import Chains, Frame
from torchlens._keys.names import Speller, Written, torch_name
from torchlens._records import OpNumbers, Record
from torchlens._structure import around
from torchlens._trace.end_names import input_names, output_names
from torchlens._trace.features import Features
from torchlens._trace.layering import Layering, group_ops
from torchlens._values.ghost import Ghost, Recorded
from torchlens._values.ledger import Ledger
from torchlens._values.lineage import Lineage, trace_lineage
from torchlens._values.plain import recorded_in, replaced
from torchlens._values.store import ValueStore, is_tensor
from torchlens.flops.cost import Cost


class TraceReader:
    """A record with what follows from it. Holds indices and names, never a view of an op or layer."""

    def __init__(self, record: Record, ledger: Ledger, features: Features) -> None:
        self.record = record
        self.rows = record.rows
        self.ledger = ledger
        self.features = features
        self._costs: dict[int, Cost] = {}

    @cached_property
    def values(self) -> ValueStore:
        return ValueStore(self.record, self.ledger)

    @cached_property
    def numbers(self) -> OpNumbers:
        return OpNumbers.of(self.rows)

    @cached_property
    def chains(self) -> Chains:
        return Chains(self.record.places)

    @cached_property
    def speller(self) -> Speller:
        return Speller(self.chains, is_tensor)

    @cached_property
    def layering(self) -> Layering:
        return group_ops(self.record, self.numbers, self.chains, self.speller)

    @cached_property
    def lineage(self) -> Lineage:
        return trace_lineage(self.record, self.numbers, self.ledger)

    @cached_property
    def parents(self) -> list[tuple[int, ...]]:
        """For each op, its parents, each once, in order of first use."""
        return [tuple(dict.fromkeys(op for _, op in edges)) for edges in self.lineage.parents]

    @cached_property
    def children(self) -> list[list[int]]:
        """For each op, the ops that use it, in capture order."""
        children: list[list[int]] = [[] for _ in self.numbers.rows]
        for op, parents in enumerate(self.parents):
            for parent in parents:
                children[parent].append(op)
        return children

    @cached_property
    def op_labels(self) -> list[str]:
        layering = self.layering
        layers = layering.layers
        return [
            f"{layers[layer].label}:{number}" for layer, number in zip(layering.layer_of, layering.pass_of)
        ]

    @cached_property
    def op_index(self) -> dict[str, int]:
        """Op label to op; the label of a single-pass layer names its op too."""
        index = {label: op for op, label in enumerate(self.op_labels)}
        index.update({entry.label: entry.ops[0] for entry in self.layering.layers if len(entry.ops) == 1})
        return index

    @cached_property
    def layer_index(self) -> dict[str, int]:
        return {entry.label: at for at, entry in enumerate(self.layering.layers)}

    @cached_property
    def module_index(self) -> dict[str, int]:
        entries = self.record.modules
        return {address: at for at, entry in enumerate(entries) for address in entry.addresses}

    @cached_property
    def param_index(self) -> dict[str, int]:
        return {address: at for at, entry in enumerate(self.record.params) for address in entry.addresses}

    @cached_property
    def buffer_index(self) -> dict[str, int]:
        return {address: at for at, entry in enumerate(self.record.buffers) for address in entry.addresses}

    @cached_property
    def buffer_of_row(self) -> dict[int, int]:
        return {row: at for at, entry in enumerate(self.record.buffers) for row in entry.rows}

    @cached_property
    def module_calls_of(self) -> list[list[int]]:
        """For each module, its calls in order."""
        calls: list[list[int]] = [[] for _ in self.record.modules]
        for at, entry in enumerate(self.record.module_calls):
            if entry.number:
                calls[entry.module].append(at)
        return calls

    @cached_property
    def call_labels(self) -> list[str]:
        modules = self.record.modules
        return [f"{modules[c.module].addresses[0]}:{c.number}" for c in self.record.module_calls]

    @cached_property
    def call_index(self) -> dict[str, int]:
        """Module call label to call, under every address of a shared module."""
        index: dict[str, int] = {}
        for at, call in enumerate(self.record.module_calls):
            if call.number:
                index.update({f"{a}:{call.number}": at for a in self.record.modules[call.module].addresses})
        return index

    @cached_property
    def ops_of_call(self) -> list[list[int]]:
        """For each module call, the ops that ran in it and in no call within it."""
        ops: list[list[int]] = [[] for _ in self.record.module_calls]
        for op, row in enumerate(self.numbers.rows):
            ops[self.rows.call[row]].append(op)
        return ops

    @cached_property
    def ops_of_param(self) -> list[list[int]]:
        ops: list[list[int]] = [[] for _ in self.record.params]
        for row, used in enumerate(self.lineage.params):
            for param in dict.fromkeys(param for _, param in used):
                ops[param].extend(self.ops_of_row(row))
        return ops

    @cached_property
    def makers(self) -> dict[int, list[tuple[int, int]]]:
        """Id of each recorded tensor to the (row, op) pairs that gave it, in order."""
        made: dict[int, list[tuple[int, int]]] = {}
        for op, (row, slot) in enumerate(zip(self.numbers.rows, self.numbers.slots)):
            if self.rows.kind[row] != "output":
                made.setdefault(id(self.tensor(row, slot)), []).append((row, op))
        for before, alias, original in self.record.aliases:
            known = [pair for pair in made.get(id(original), ()) if pair[0] < before]
            made.setdefault(id(alias), []).extend(known[-1:])
        return made

    def maker_before(self, tensor: Recorded, row: int) -> int | None:
        """The op that last gave a tensor object before a row; None if it was only ever an argument."""
        held: Recorded | None = tensor
        while held is not None:
            pairs = self.makers.get(id(held), ())
            found = next((op for made, op in reversed(pairs) if made < row), None)
            if found is not None or not isinstance(held, Ghost):
                return found
            held = held.before  # a ghost is of one op; the tensor may have had one before
        return None

    @cached_property
    def _scopes(self) -> list[frozenset[str]]:
        """For each module call, the addresses of its module and of those around it."""
        modules = self.record.modules
        scopes = [frozenset([""])]
        for call in self.record.module_calls[1:]:
            scopes.append(scopes[call.parent] | around(modules[call.module].addresses))
        return scopes

    def scopes(self, call: int) -> frozenset[str]:
        """The addresses of the modules around what runs in a module call."""
        return self._scopes[call]

    @cached_property
    def outputs_of(self) -> dict[str, set[int]]:
        """By address of a module, and of each of its calls, the ops that it returned."""
        found: dict[str, set[int]] = {}
        for call in self.record.module_calls:
            if call.end is None:
                continue
            given = recorded_in(call.output)
            ops = {op for tensor in given if (op := self.maker_before(tensor, call.end)) is not None}
            for address in self.record.modules[call.module].addresses:
                found.setdefault(address, set()).update(ops)
                found.setdefault(f"{address}:{call.number}", set()).update(ops)
        return found

    @cached_property
    def reads_of_op(self) -> dict[int, list[str]]:
        """Op to the ways in which its value left for Python."""
        reads: dict[int, list[str]] = {}
        for before, name, tensor in self.record.reads:
            maker = self.maker_before(tensor, before)
            if maker is not None:
                reads.setdefault(maker, []).append(name)
        return reads

    @cached_property
    def site_keys(self) -> list[str]:
        """For each op, module address, type, output slot and ordinal within the module call."""
        seen: dict[tuple[int, str, int], int] = {}
        keys: list[str] = []
        for op, (row, slot) in enumerate(zip(self.numbers.rows, self.numbers.slots)):
            call = self.rows.call[row]
            kind = self.layering.layers[self.layering.layer_of[op]].type
            ordinal = seen[call, kind, slot] = seen.get((call, kind, slot), -1) + 1
            address = self.record.modules[self.record.module_calls[call].module].addresses[0]
            keys.append(f"{address}/{kind}/{slot}/{ordinal}")
        return keys

    def ops_of_row(self, row: int) -> range:
        """The ops that are outputs of one call."""
        first = self.numbers.first
        end = first[row + 1] if row + 1 < len(first) else len(self.numbers.rows)
        return range(first[row], end)

    def tensor(self, row: int, slot: int) -> Recorded:
        """What a row gave."""
        out: Any = self.rows.out[row]
        return cast("tuple[Recorded, ...]", out)[slot] if type(out) is tuple else out

    def func(self, row: int) -> Any:
        """What a row called; of what is no call, the name that stands in its place."""
        return self.rows.func[row]

    def name(self, row: int) -> str:
        """Torch's name of a row's function; of what is no call, the name that stands in its place."""
        return self.speller.name(self.rows.func[row])

    @cached_property
    def _end_names(self) -> dict[int, str]:
        return input_names(self.record) | output_names(self.record)

    def given_name(self, row: int) -> str | None:
        """What a row that is no call goes by outside of the trace; no key to align runs by."""
        func = self.rows.func[row]
        return func if self.rows.kind[row] in ("source", "buffer") else self._end_names.get(row)

    def is_spelling_known(self, row: int) -> bool:
        """Whether the code at a call was told from others that make the same call."""
        return self.rows.kind[row] != "call" or self.speller.spelling(Written.of(self.rows, row)).known

    def frames(self, row: int) -> tuple[Frame, ...]:
        """The frames from the module's forward down to a row's call, outermost first."""
        return self.chains.frames(self.rows.site[row])

    def composites(self, row: int) -> tuple[str, ...]:
        """The names of the Python-written torch functions that a row was reached through."""
        return tuple(map(torch_name, self.chains.composites(self.rows.site[row])))

    def cost(self, row: int) -> Cost:
        """FLOPs and MACs of a row's call."""
        found = self._costs.get(row)
        if found is None:
            rows = self.rows
            if rows.kind[row] in ("call", "boundary"):
                args, kwargs, out = rows.args[row], rows.kwargs[row], rows.out[row]
                if not self._counts_as_recorded:
                    args, kwargs = self._as_they_were((args, kwargs), row)
                    out = self._for_counting(out)
                found = flops.count(rows.func[row], args, kwargs, out)
            else:
                found = Cost(0, 0, None)
            self._costs[row] = found
        return found

    @cached_property
    def _counts_as_recorded(self) -> bool:
        """Whether every tensor is kept and has the shape that it had."""
        return self.record.keeps_all and not self.ledger.metadata

    def cost_of_op(self, op: int) -> Cost:
        """FLOPs and MACs of an op's call, which stand on its first output."""
        slot = self.numbers.slots[op]
        if not slot:
            return self.cost(self.numbers.rows[op])
        reason = f"the call's FLOPs stand on its first output, {self.op_labels[op - slot]}"
        return Cost(None, None, reason)

    def duration_of_op(self, op: int) -> int | None:
        """Nanoseconds of an op's call, on its first output; None on the others and on what is no call."""
        row = self.numbers.rows[op]
        timed = not self.numbers.slots[op] and self.rows.kind[row] == "call"
        return self.rows.duration[row] if timed else None

    def _as_they_were(self, arguments: Any, row: int) -> Any:
        """Arguments with the shapes they had, where a call has changed shapes in place."""
        if not self.ledger.metadata:
            return self._for_counting(arguments)
        seen = replaced(arguments, lambda tensor: self.values.geometry(tensor, row, after=False))
        return self._for_counting(seen)

    def _for_counting(self, value: Any) -> Any:
        """Recorded data in which each tensor has a shape and dtype, be it kept or not."""
        if self.record.keeps_all:
            return value
        return replaced(value, lambda held: held.as_meta() if isinstance(held, Ghost) else held)
