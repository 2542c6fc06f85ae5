"""Ops to layers and passes: ops whose keys are equal are passes of one layer.

The key of a call is (module, place in the code, function as written, output slot). Nothing about values,
shapes, weights or the graph takes part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

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
    ops: list[int] = field(default_factory=list[int])


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
    rows = record.rows
    modules = [call.module for call in record.module_calls]
    found: dict[Hashable, int] = {}
    seen: dict[tuple[object, ...], int] = {}
    counts: Counter[str] = Counter()
    result = Layering([], [], [])
    for row, slot in zip(numbers.rows, numbers.slots):
        # most ops repeat what was seen before: same function, same unfolded place
        sketch = (modules[rows.call[row]], rows.site[row], speller.sketch(row), slot)
        layer = seen.get(sketch)
        if layer is None:
            key = keys.of(row, slot)
            layer = found.get(key)
            if layer is None:
                layer = found[key] = len(result.layers)
                func_name = keys.func_name(row)
                kind = type_of(func_name)
                counts[kind] += 1
                result.layers.append(LayerEntry(f"{kind}_{counts[kind]}", kind, func_name, sketch[0]))
            if sketch[1] and rows.kind[row] == "call":
                seen[sketch] = layer
        ops = result.layers[layer].ops
        ops.append(len(result.layer_of))
        result.layer_of.append(layer)
        result.pass_of.append(len(ops))
    return result


class _Keys:
    """The key of each op. Two ops are passes of one layer if and only if their keys are equal."""

    def __init__(self, record: Record, chains: Chains, speller: Speller) -> None:
        self._record = record
        self._rows = record.rows
        self._place: Callable[[int], int] = chains.key
        self._speller = speller
        self._places: dict[int, int] = {}
        self._positions: Counter[int] = Counter()
        self._position_keys: dict[int, Hashable] = {}
        self._buffer_keys = _buffer_keys(record, self._place_of)

    def func_name(self, row: int) -> str:
        kind = self._rows.kind[row]
        return self._speller.spelling(row).func_name if kind in ("call", "boundary") else kind

    def of(self, row: int, slot: int) -> Hashable:
        kind = self._rows.kind[row]
        if kind == "buffer":
            return self._buffer_keys[row]
        if kind not in ("call", "boundary"):
            return kind, row
        module = self._record.module_calls[self._rows.call[row]].module
        site = self._rows.site[row]
        if site == 0:
            return module, self._position(row), slot
        return module, self._place_of(site), self.func_name(row), slot

    def _place_of(self, site: int) -> int:
        place = self._places.get(site)
        if place is None:
            place = self._places[site] = self._place(site)
        return place

    def _position(self, row: int) -> Hashable:
        """Without a frame: how many such ops came before in the module call, and the plain arguments."""
        known = self._position_keys.get(row)
        if known is None:
            call = self._rows.call[row]
            position = self._positions[call]
            self._positions[call] += 1
            plain = repr([arg for arg in self._rows.args[row] if not is_tensor(arg)])
            known = self._position_keys[row] = ("position", self.func_name(row), plain, position)
        return known


def _buffer_keys(record: Record, place_of: Callable[[int], int]) -> dict[int, Hashable]:
    """Versions are grouped by the place that wrote them; a starting value joins the first if that repeats."""
    keys: dict[int, Hashable] = {}
    for buffer, entry in enumerate(record.buffers):
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
