"""Ops to layers and passes: ops whose keys are equal are passes of one layer.

The key of a call is (module, place in the code, function as written, output slot). Nothing about values,
shapes, weights or the graph takes part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import NamedTuple

from torchlens._keys.chains import Chains
from torchlens._records import OpNumbers, Record
from torchlens._trace.names import Speller, type_of
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


class _Written(NamedTuple):
    """A function as written at a place. Equal numbers: the same function, the same place."""

    number: int
    func_name: str
    type: str


def group_ops(record: Record, numbers: OpNumbers, chains: Chains, speller: Speller) -> Layering:
    """Group the ops of a record and number layers and passes in capture order."""
    keys = _Keys(record, chains, speller)
    calls, modules = record.rows.call, [call.module for call in record.module_calls]
    found: dict[Hashable, int] = {}
    counts: dict[str, int] = {}
    result = Layering([], [], [])
    layers, layer_of, pass_of = result.layers, result.layer_of, result.pass_of
    for op, (row, slot) in enumerate(zip(numbers.rows, numbers.slots)):
        module = modules[calls[row]]
        written = keys.written(row)
        key = (module, written.number, slot) if written is not None else keys.apart(row, slot)
        layer = found.get(key)
        if layer is None:
            layer = found[key] = len(layers)
            func_name, kind = (written.func_name, written.type) if written is not None else keys.names(row)
            count = counts[kind] = counts.get(kind, 0) + 1
            layers.append(LayerEntry(f"{kind}_{count}", kind, func_name, module, [op]))
            pass_of.append(1)
        else:
            ops = layers[layer].ops
            ops.append(op)
            pass_of.append(len(ops))
        layer_of.append(layer)
    return result


class _Keys:
    """The key of each op. Two ops are passes of one layer if and only if their keys are equal."""

    def __init__(self, record: Record, chains: Chains, speller: Speller) -> None:
        self._rows = record.rows
        self._chains = chains
        self._speller = speller
        self._written: dict[object, _Written] = {}
        self._numbers: dict[tuple[int, str], int] = {}
        self._positions: Counter[int] = Counter()
        self._position_keys: dict[int, Hashable] = {}
        self._buffer_keys = _buffer_keys(record, chains.key)
        self._modules = [call.module for call in record.module_calls]

    def written(self, row: int) -> _Written | None:
        """What a call at a place is; None for ops that are grouped by something else.

        The blocks of a model share their code, so nearly every row repeats a function at an unfolded place.
        """
        site = self._rows.site[row]
        if not site or self._rows.kind[row] == "buffer":
            return None
        sketch = (site, self._speller.sketch(row))
        written = self._written.get(sketch)
        if written is None:
            func_name = self._speller.spelling(row).func_name
            place = self._chains.key(site)
            number = self._numbers.setdefault((place, func_name), len(self._numbers))
            written = self._written[sketch] = _Written(number, func_name, type_of(func_name))
        return written

    def names(self, row: int) -> tuple[str, str]:
        """`func_name` and type of an op that is not grouped by place."""
        kind = self._rows.kind[row]
        func_name = self._speller.spelling(row).func_name if kind in ("call", "boundary") else kind
        return func_name, type_of(func_name)

    def apart(self, row: int, slot: int) -> Hashable:
        """The key of an op that is not grouped by place."""
        kind = self._rows.kind[row]
        if kind == "buffer":
            return self._buffer_keys[row]
        if kind in ("call", "boundary"):
            return self._modules[self._rows.call[row]], self._position(row), slot
        return kind, row

    def _position(self, row: int) -> Hashable:
        """Without a frame: how many such ops came before in the module call, and the plain arguments."""
        known = self._position_keys.get(row)
        if known is None:
            call = self._rows.call[row]
            position = self._positions[call]
            self._positions[call] += 1
            plain = repr([arg for arg in self._rows.args[row] if not is_tensor(arg)])
            known = self._position_keys[row] = ("position", self.names(row)[0], plain, position)
        return known


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
