"""Puts what the second of two runs has alone into the boxes of the first."""

from __future__ import annotations

from collections import defaultdict

from torchlens._trace.views import Views
from torchlens.comparing.outline import Outline
from torchlens.drawing.one_run import box_of_call
from torchlens.drawing.scene import Box, Item, Leaf


class Weaver:
    """Goes through the second run and gives each op and call that has no leaf or box yet one.

    They stand before what the second run has next of the first, so behind what the first run has alone there.
    """

    def __init__(self, b: Views, boxes: dict[int, Box], leaves: dict[int, Leaf], counted: set[str]) -> None:
        self._reader, self._op = b.reader, b.op
        self._outline = Outline(b)
        self._boxes = boxes
        """By call of the second run."""
        self._leaves = leaves
        """By op of the second run."""
        self._counted = counted
        """Addresses of modules whose calls have their number in the label."""
        self._seams = {call: _Seam(box) for call, box in boxes.items()}
        """By call; a call of this run only has that of its caller, for what the first run has outside it."""
        self._own = {id(seam.box): seam for seam in self._seams.values()}
        self.added: list[Leaf] = []

    def weave(self) -> None:
        """Fill the boxes and both tables."""
        items = self._outline.items
        waiting = [(0, iter(items[0]))]
        while waiting:
            call, rest = waiting[-1]
            item = next(rest, None)
            if item is None:
                waiting.pop()
            elif item < 0:
                self._enter(~item, call)
                waiting.append((~item, iter(items[~item])))
            else:
                for op in self._reader.ops_of_row(item):
                    self._place(op, call)
        for seam in self._own.values():
            seam.close()

    def _enter(self, call: int, caller: int) -> None:
        if call in self._boxes:
            self._seams[caller].meet(self._boxes[call])
            return
        self._seams[call] = self._seams[caller]
        if not self._outline.span(~call):  # a call without ops is drawn; one whose ops are elsewhere is not
            self._box(call)

    def _place(self, op: int, call: int) -> None:
        leaf = self._leaves.get(op)
        if leaf is not None:
            self._seams[call].meet(leaf)
            return
        box = self._box(call)
        leaf = self._leaves[op] = Leaf(box, [self._op(op)])
        self.added.append(leaf)
        self._append(box, leaf)

    def _box(self, call: int) -> Box:
        """The box of a call, made now, with those around it, if this is the first that stands in it."""
        missing: list[int] = []
        while call not in self._boxes:
            missing.append(call)
            call = self._reader.record.module_calls[call].parent
        box = self._boxes[call]
        for inner in reversed(missing):
            caller, box = box, box_of_call(self._reader, inner, box, counted=self._counted)
            box.calls, box.status = [inner], "added"
            self._boxes[inner] = box
            self._append(caller, box)
        return box

    def _append(self, box: Box, item: Item) -> None:
        seam = self._own.get(id(box))
        if seam is None:
            box.items.append(item)
        else:
            seam.add(item)


class _Seam:
    """A box of both runs: its items in the first run, and where those of the second go between them."""

    def __init__(self, box: Box) -> None:
        self.box = box
        self._places = {id(item): at for at, item in enumerate(box.items)}
        self._before: dict[int, list[Item]] = defaultdict(list)
        self._waiting: list[Item] = []
        self._passed = -1

    def meet(self, item: Item) -> None:
        """Come to something of the first run, itself an item or in one: what waits stands before it."""
        around = item.box if isinstance(item, Leaf) else item.parent
        while around is not None and around is not self.box:
            item, around = around, around.parent
        at = self._places.get(id(item), -1)
        if at > self._passed:
            self._before[at] += self._waiting
            self._waiting, self._passed = [], at

    def add(self, item: Item) -> None:
        """Take in what the second run has here alone."""
        self._waiting.append(item)

    def close(self) -> None:
        """Write the items into the box."""
        found: list[Item] = []
        for at, item in enumerate(self.box.items):
            found += [*self._before[at], item]
        self.box.items = found + self._waiting
