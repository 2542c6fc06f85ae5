"""The scene of one run: every pass by itself, or rolled, each layer and module once."""

from __future__ import annotations

from collections.abc import Iterator

from torchlens._trace.views import Views
from torchlens._values.ghost import Recorded
from torchlens._values.lineage import HOST, positions
from torchlens.comparing.outline import Outline
from torchlens.drawing.scene import Box, Leaf, Link, Scene
from torchlens.report.sizes import shape_of


def build_scene(views: Views, *, rolled: bool) -> Scene:
    """The boxes, leaves and links of a run. Rolled, a module stands where it was called first."""
    return _Builder(views, rolled).build()


class _Builder:
    def __init__(self, views: Views, rolled: bool) -> None:
        self._views = views
        self._reader = views.reader
        self._record = views.reader.record
        self._rolled = rolled
        self._leaf_of: dict[int, Leaf] = {}
        """By op."""
        self._boxes: dict[int, Box] = {}
        """By call; rolled, by module."""
        self._layers: dict[int, Leaf] = {}

    def build(self) -> Scene:
        top = Box(None, "", "", calls=[0])
        self._fill(top)
        leaves = list(top.leaves())
        for index, leaf in enumerate(leaves):
            leaf.index = index
        return Scene(top, leaves, list(self._links()), self._rolled)

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
        entry = self._record.module_calls[call]
        key = entry.module if self._rolled else call
        box = self._boxes.get(key)
        if box is None:
            module = self._record.modules[entry.module]
            box = Box(caller, module.addresses[0], module.type_name, module.addresses[0])
            if not self._rolled and len(self._reader.module_calls_of[entry.module]) > 1:
                box.label = self._reader.call_labels[call]
            self._boxes[key] = box
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

    def _links(self) -> Iterator[Link]:
        found: dict[tuple[int, int], Link] = {}
        for op, parents in enumerate(self._reader.lineage.parents):
            row = self._reader.numbers.rows[op]
            arguments = self._arguments(row)
            target = self._leaf_of[op]
            for position, parent in parents:
                source = self._leaf_of[parent]
                key = source.index, target.index
                link = found.get(key) or found.setdefault(key, Link(source, target))
                link.edges[parent, op] = None
                link.positions[position] = None
                link.shape.add(self._shape(arguments, position, parent, row))
        yield from found.values()

    def _arguments(self, row: int) -> dict[str, Recorded]:
        return dict(positions(self._reader.rows.args[row], self._reader.rows.kwargs[row]))

    def _shape(
        self, arguments: dict[str, Recorded], position: str, parent: int, row: int
    ) -> tuple[int, ...] | None:
        """Of the argument as it was read; of what came through the host, as the parent gave it."""
        tensor = arguments.get(position)
        if tensor is None or position == HOST:
            return shape_of(self._views.op(parent)._seen)
        return shape_of(self._reader.values.geometry(tensor, row, after=False))
