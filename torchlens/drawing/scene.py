"""What may be drawn of a run: boxes within boxes, leaves in them, and links between leaves."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from torchlens._trace.op import Op
from torchlens._trace.views import Views
from torchlens._values.geometry import dtype_name
from torchlens.report.amounts import ShapeRange
from torchlens.report.sizes import shape_of

Status: TypeAlias = Literal["both", "removed", "added"]
"""In a scene of two runs: in both of them, in the first only, in the second only."""


@dataclass(slots=True)
class Mark:
    """What a scene of two runs says of a leaf."""

    status: Status
    distance: float | None
    """The largest relative difference of its values, 0 where they are equal bit for bit; None: not known."""
    text: str
    """The difference, or why there is none, in a few words."""
    equal: bool = False
    """Whether both runs have it and its values are equal bit for bit and of one dtype."""
    twin: Op | None = None
    """The op of the second run, where the leaf is in both; the leaf's own op is that of the first."""


@dataclass(slots=True, eq=False, repr=False)
class Leaf:
    """One op or, in a rolled scene, one layer: its ops are the passes."""

    box: Box
    ops: list[Op]
    index: int = 0
    """Its place in `Scene.leaves`."""
    start: int = 0
    """That of the first output of its call: what flows from one output of a call to another goes back."""
    mark: Mark | None = None
    """None in a scene of one run."""

    @property
    def first(self) -> Op:
        """The op that its name, function and place in the code are told from."""
        return self.ops[0]

    @property
    def label(self) -> str:
        """The op's label; the layer's where it stands for all passes of it."""
        layer = self.first.layer
        return layer.layer_label if len(self.ops) == layer.num_passes else self.first.label

    @property
    def look(self) -> str:
        """The shapes and dtypes of what its ops gave."""
        shape = ShapeRange()
        for op in self.ops:
            shape.add(shape_of(op._seen))
        return f"{shape} {', '.join(dict.fromkeys(dtype_name(op.dtype) for op in self.ops))}"

    @property
    def is_added(self) -> bool:
        """Whether it is of the second of two runs only."""
        return self.mark is not None and self.mark.status == "added"

    @property
    def is_state(self) -> bool:
        """Whether it is the value of a buffer before anything wrote it; of two runs, in both the same."""
        if self.mark is not None and not self.mark.equal:
            return False
        return all(op.kind == "buffer" and not op.parents for op in self.ops)


@dataclass(slots=True, eq=False, repr=False)
class Box:
    """One module call or, in a rolled scene, a module with all its calls; the top is what is outside any."""

    parent: Box | None
    address: str
    """Of the module; `""` is the root, and what is outside any call."""
    type_name: str
    """The module's class; empty for the top."""
    label: str = ""
    """The address, with the call's number where a module has several calls and the box is one of them.

    `layers.2 → 3` in a scene of two runs, where the second has another name for it."""
    calls: list[int] = field(default_factory=list[int])
    """Indices of the module calls it stands for; of the second run where the status is "added"."""
    items: list[Item] = field(default_factory=list["Item"])
    """What ran directly in it, in the order of the first run, with what a second has alone put in."""
    status: Status | None = None
    """None in a scene of one run."""

    @property
    def name(self) -> str:
        """The label below the enclosing box's address, but from a word on; the class for the root."""
        if not self.address:
            return f"{self.type_name}{self.label}" or "root"
        around = "" if self.parent is None else self.parent.address
        found = below(self.label, around)
        while found != self.label and found[0].isdigit():
            around, _, last = around.rpartition(".")
            found = f"{last}.{found}"
        return found

    def leaves(self) -> Iterator[Leaf]:
        """All leaves in it, those of inner boxes included, in order."""
        waiting: list[Item] = self.items[::-1]
        while waiting:
            item = waiting.pop()
            if isinstance(item, Leaf):
                yield item
            else:
                waiting += reversed(item.items)

    def boxes(self) -> Iterator[Box]:
        """All boxes in it, outer ones first."""
        waiting = [item for item in reversed(self.items) if isinstance(item, Box)]
        while waiting:
            box = waiting.pop()
            yield box
            waiting += (item for item in reversed(box.items) if isinstance(item, Box))

    def boxes_in_it(self) -> Iterator[Box]:
        """The boxes that stand directly in it."""
        return (item for item in self.items if isinstance(item, Box))

    def around(self) -> Iterator[Box]:
        """The boxes that it stands in, from the inside out; the top is the last."""
        box = self.parent
        while box is not None:
            yield box
            box = box.parent

    @property
    def views(self) -> Views | None:
        """Those of the run that its calls are of; None if it has no op of that run."""
        of_its_run = (leaf for leaf in self.leaves() if leaf.is_added == (self.status == "added"))
        first = next(of_its_run, None)
        return None if first is None else first.first._views

    @property
    def only_leaf(self) -> Leaf | None:
        """The leaf, if it is all that is in the box."""
        found: Item = self
        while isinstance(found, Box):
            if len(found.items) != 1:
                return None
            found = found.items[0]
        return found


Item: TypeAlias = Leaf | Box


def leaves_of(item: Item) -> Iterator[Leaf]:
    """The leaf itself, or all leaves in a box."""
    return iter((item,)) if isinstance(item, Leaf) else item.leaves()


def path_to(item: Item) -> list[Item]:
    """The boxes around an item, the outermost first, and the item."""
    path: list[Item] = [item]
    box = item.box if isinstance(item, Leaf) else item.parent
    while box is not None:
        path.append(box)
        box = box.parent
    return path[::-1]


def name_of(item: Item) -> str:
    """What an item is called in a picture."""
    return item.name if isinstance(item, Box) else item.label


def below(label: str, address: str) -> str:
    """The label of a module or call without the address of the module around it."""
    return label[len(address) + 1 :] if address and label.startswith(f"{address}.") else label


@dataclass(slots=True, eq=False, repr=False)
class Link:
    """What flows from one leaf into another, in one pass or into a later one: the edges between their ops."""

    source: Leaf
    target: Leaf
    edges: dict[tuple[int, int], None] = field(default_factory=dict[tuple[int, int], None])
    """(parent, child) by op index, each edge of the graph once.

    In a scene of two runs, of the first run; of the second where the status is "added"."""
    positions: dict[str, None] = field(default_factory=dict[str, None])
    """The argument positions it fills, in order."""
    shape: ShapeRange = field(default_factory=ShapeRange)
    """Of the argument as the target read it."""
    later: bool = False
    """Whether it leads to a later pass: both leaves ran again between the ops of each of its edges."""
    status: Status | None = None
    """None in a scene of one run."""


@dataclass(slots=True, repr=False)
class Scene:
    """All that may be drawn of a run."""

    top: Box
    """The space outside all module calls: inputs, outputs and the root calls."""
    leaves: list[Leaf]
    """In the order in which they stand in the boxes."""
    links: list[Link]
    rolled: bool

    def release(self) -> None:
        """Let go of the runs: boxes and leaves hold one another, so that only the collector frees them.

        Copies that leave something out hold the same ops, and are of no use any more either.
        """
        for leaf in self.leaves:
            leaf.ops.clear()
            if leaf.mark is not None:
                leaf.mark.twin = None


def numbered_leaves(top: Box) -> list[Leaf]:
    """All leaves in order, each told its place."""
    leaves = list(top.leaves())
    for index, leaf in enumerate(leaves):
        leaf.index = leaf.start = index
        if index and leaf.first.output_slot and _are_of_one_call(leaves[index - 1].first, leaf.first):
            leaf.start = leaves[index - 1].start
    return leaves


def _are_of_one_call(op: Op, other: Op) -> bool:
    return op._views is other._views and op.call_index == other.call_index


@contextmanager
def released(scene: Scene) -> Generator[Scene]:
    """A scene that lets go of its runs in the end."""
    try:
        yield scene
    finally:
        scene.release()
