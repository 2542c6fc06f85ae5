"""The scene of one run: every pass by itself, or rolled, each layer and module once."""

from __future__ import annotations

from collections.abc import Container

from torchlens._trace.reader import TraceReader
from torchlens._trace.views import Views
from torchlens.comparing.outline import Outline
from torchlens.drawing.links import links_between
from torchlens.drawing.scene import Box, Leaf, Scene, numbered_leaves


def build_scene(views: Views, *, rolled: bool) -> Scene:
    """The boxes, leaves and links of a run. Rolled, a module stands where it was called first."""
    return _Builder(views, rolled).build()


def box_of_call(reader: TraceReader, call: int, caller: Box, *, counted: Container[str]) -> Box:
    """An empty box for a module call, not yet among its caller's items.

    `counted`: addresses of the modules whose calls have their number in the label.
    """
    module = reader.record.modules[reader.record.module_calls[call].module]
    address = module.addresses[0]
    label = reader.call_labels[call] if address in counted else address
    return Box(caller, address, module.type_name, label)


def called_again(reader: TraceReader) -> set[str]:
    """Addresses of the modules that a run calls more than once."""
    modules = zip(reader.record.modules, reader.module_calls_of)
    return {module.addresses[0] for module, calls in modules if len(calls) > 1}


class _Builder:
    def __init__(self, views: Views, rolled: bool) -> None:
        self._views = views
        self._reader = views.reader
        self._rolled = rolled
        self._leaf_of: dict[int, Leaf] = {}
        """By op."""
        self._boxes: dict[int, Box] = {}
        """By call; rolled, by module."""
        self._layers: dict[int, Leaf] = {}
        self._counted = set[str]() if rolled else called_again(views.reader)

    def build(self) -> Scene:
        top = Box(None, "", "", calls=[0])
        self._fill(top)
        leaves = numbered_leaves(top)
        return Scene(top, leaves, links_between(self._views, self._leaf_of), self._rolled)

    def _fill(self, top: Box) -> None:
        """Put rows and calls into their boxes, in capture order."""
        items = Outline(self._views).items
        waiting = [(top, iter(items[0]))]
        while waiting:
            box, rest = waiting[-1]
            item = next(rest, None)
            if item is None:
                waiting.pop()
            elif item < 0:
                waiting.append((self._box(~item, box), iter(items[~item])))
            else:
                for op in self._reader.ops_of_row(item):
                    self._leaf_of[op] = self._leaf(op, box)

    def _box(self, call: int, caller: Box) -> Box:
        entry = self._reader.record.module_calls[call]
        key = entry.module if self._rolled else call
        box = self._boxes.get(key)
        if box is None:
            box = self._boxes[key] = box_of_call(self._reader, call, caller, counted=self._counted)
            caller.items.append(box)
        box.calls.append(call)
        return box

    def _leaf(self, op: int, box: Box) -> Leaf:
        layer = self._reader.layering.layer_of[op]
        leaf = self._layers.get(layer) if self._rolled else None
        if leaf is None:
            leaf = self._layers[layer] = Leaf(box, [])
            box.items.append(leaf)
        leaf.ops.append(self._views.op(op))
        return leaf
