"""Ops to layers and passes: ops whose keys are equal are passes of one layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from torchlens._keys.chains import Chains
from torchlens._keys.layers import CallKeys, LayerNumbers, Place
from torchlens._keys.names import Speller, Written, type_of
from torchlens._records import OpNumbers, Record
from torchlens._values.store import is_tensor


@dataclass(slots=True)
class LayerEntry:
    """One layer: its ops in order of their passes."""

    label: str
    type: str
    func_name: str
    module: int
    ops: list[int]


@dataclass(slots=True)
class Layering:
    """Which layer each op belongs to, and as which pass."""

    layers: list[LayerEntry]
    layer_of: list[int]
    pass_of: list[int]
    """1 for a layer's first pass."""


def group_ops(record: Record, numbers: OpNumbers, chains: Chains, speller: Speller) -> Layering:
    """Group the ops of a record and number layers and passes in capture order."""
    keys = _Keys(record, chains, speller)
    rows, modules, known = record.rows, [call.module for call in record.module_calls], keys.calls.known
    calls, sites, funcs, sides = rows.call, rows.site, rows.func, rows.side
    found = LayerNumbers()
    layer_at = found.of.get
    result = Layering([], [], [])
    layers, layer_of, pass_of = result.layers, result.layer_of, result.pass_of
    for op, (row, slot) in enumerate(zip(numbers.rows, numbers.slots)):
        module = modules[calls[row]]
        place = known.get((sites[row], id(funcs[row]), sides[row])) or keys.place(row)
        key = (module, place.number, slot) if place is not None else keys.apart(row, slot)
        layer = layer_at(key)
        if layer is None:
            func_name, kind = (place.func_name, place.type) if place is not None else keys.names(row)
            layer = found.add(key, kind)
            layers.append(LayerEntry(found.labels[layer], kind, func_name, module, [op]))
            pass_of.append(1)
        else:
            ops = layers[layer].ops
            ops.append(op)
            pass_of.append(len(ops))
        layer_of.append(layer)
    return result


class _Keys:
    """The key of each op of a record."""

    def __init__(self, record: Record, chains: Chains, speller: Speller) -> None:
        self._rows = record.rows
        self._speller = speller
        self.calls = CallKeys(chains, speller, is_tensor)
        self._position_keys: dict[int, Hashable] = {}
        self._buffer_keys = _buffer_keys(record, chains.key)
        self._modules = [call.module for call in record.module_calls]

    def place(self, row: int) -> Place | None:
        """What a call at a place is; None for ops that are grouped by something else."""
        rows = self._rows
        site, kind = rows.site[row], rows.kind[row]
        if not site or kind == "buffer":
            return None
        return self.calls.place(site, rows.func[row], rows.args[row], rows.side[row], kind)

    def names(self, row: int) -> tuple[str, str]:
        """`func_name` and type of an op that is not grouped by place."""
        kind = self._rows.kind[row]
        called = kind in ("call", "boundary")
        func_name = self._speller.spelling(Written.of(self._rows, row)).func_name if called else kind
        return func_name, type_of(func_name)

    def apart(self, row: int, slot: int) -> Hashable:
        """The key of an op that is not grouped by place."""
        kind = self._rows.kind[row]
        if kind == "buffer":
            return self._buffer_keys[row]
        if kind in ("call", "boundary"):
            call = self._rows.call[row]
            known = self._position_keys.get(row)
            if known is None:
                known = self.calls.position(Written.of(self._rows, row), call)
                self._position_keys[row] = known
            return self._modules[call], known, slot
        return kind, row


def _buffer_keys(record: Record, place_of: Callable[[int], int]) -> dict[int, Hashable]:
    """Versions are grouped by the place that wrote them; a starting value joins the first if that repeats."""
    keys: dict[int, Hashable] = {}
    for buffer, (_, entry) in enumerate(record.structure.held_buffers):
        writes = [row for row in entry.rows if record.rows.args[row]]
        for row in writes:
            module = record.module_calls[record.rows.call[row]].module
            keys[row] = ("buffer", buffer, module, place_of(record.rows.site[row]))
        repeated = Counter(keys[row] for row in writes)
        for row in entry.rows:
            if row not in keys:
                first = next((keys[write] for write in writes if write > row), None)
                keys[row] = first if first is not None and repeated[first] > 1 else ("buffer", buffer, row)
    return keys
