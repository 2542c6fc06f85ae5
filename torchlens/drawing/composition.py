"""What a static picture shows: which boxes are open, what is folded into one, and the arrows that result.

Every leaf of a scene is shown by exactly one node, alone, within a closed module or folded with others that
are alike; every link is part of exactly one arrow, or lies within a node.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Literal, TypeAlias

from torchlens.drawing.crossing import crosses_calls
from torchlens.drawing.cutting import middles_of
from torchlens.drawing.likeness import IsOpen, Likeness, number_alike
from torchlens.drawing.repeats import Repeat, find_repeats
from torchlens.drawing.scene import Box, Item, Leaf, Link, Scene, leaves_of

NodeKind: TypeAlias = Literal["op", "module", "rest"]


@dataclass(slots=True, eq=False, repr=False)
class Node:
    """One shape of the picture."""

    name: str
    kind: NodeKind
    """`op` for an op or layer, also within a module that has nothing else; `module` for a closed one; `rest`
    for what is left out of a long row."""
    items: list[Item]
    """The like siblings it stands for, the first of which is described; of a rest, what is left out."""
    order: int
    """Its place among the nodes."""
    start: int = 0
    """When the first of what it stands for ran, as a place in order; outputs of one call have the same."""
    num_runs: int = 0
    """How many ops, or calls of a module, it stands for, those in like siblings of its clusters included."""
    siblings: int = 1
    """How many like siblings it stands for, those in like siblings of its clusters included."""
    around: tuple[Cluster, ...] = ()
    """The clusters that it stands in, the outermost first."""

    @property
    def times(self) -> int:
        """How many like siblings it stands for."""
        return 1 if self.kind == "rest" else len(self.items)

    @property
    def box(self) -> Box | None:
        """The module that it shows, if it shows one."""
        first = self.items[0]
        return first if self.kind != "rest" and isinstance(first, Box) else None

    @property
    def leaf(self) -> Leaf | None:
        """The op or layer that it shows, if it is one."""
        first = self.items[0]
        if self.kind != "op":
            return None
        return first.only_leaf if isinstance(first, Box) else first


@dataclass(slots=True, eq=False, repr=False)
class Cluster:
    """An open module, or several groups that are alike."""

    name: str
    boxes: list[Box]
    """The like siblings it stands for, the first of which is shown; empty for groups of several items."""
    times: int
    span: tuple[Item, Item]
    """The first item that it stands for, and the last."""
    siblings: int = 1
    """How many like siblings it stands for, those in like siblings of its clusters included."""
    parts: list[Node | Cluster] = field(default_factory=list["Node | Cluster"])

    def all_parts(self) -> Iterator[Node | Cluster]:
        """The clusters and nodes in it, those of inner clusters included, outer ones first."""
        for part in self.parts:
            yield part
            if isinstance(part, Cluster):
                yield from part.all_parts()

    def nodes(self) -> Iterator[Node]:
        """The nodes in it, those of inner clusters included."""
        return (part for part in self.all_parts() if isinstance(part, Node))


@dataclass(slots=True, eq=False, repr=False)
class Arrow:
    """All links between what two nodes stand for."""

    source: Node
    target: Node
    links: list[Link] = field(default_factory=list[Link])
    numbers: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """For each link, which of the siblings that the nodes stand for it leads from and to."""

    later: bool = False
    """Whether it leads forward, and to a later pass or another of several like siblings all the same."""

    @property
    def returns(self) -> bool:
        """Whether it leads back: to a later pass, or to the next of several like siblings."""
        return self.target.start <= self.source.start

    @property
    def count(self) -> int:
        """How many values it carries."""
        return len({(link.source, parent) for link in self.links for parent, _ in link.edges})


@dataclass(slots=True, repr=False)
class Composition:
    """The nodes of a picture in their clusters, and the arrows between them."""

    top: Cluster
    arrows: list[Arrow]
    node_of: list[Node]
    """By the index of the leaf."""


@dataclass(frozen=True, slots=True)
class Folding:
    """How like siblings are drawn."""

    modules: bool = True
    """Different modules that are built alike, one behind the other, are drawn once."""
    passes: bool = False
    """So are calls of one and the same module, and repeated ops outside any."""
    most_nodes: int | None = None
    """Of more nodes in one cluster than this, about, the first and last ones are shown."""


def compose(scene: Scene, is_open: IsOpen, folding: Folding, apart: Collection[Box] = ()) -> Composition:
    """Decide what is drawn; the boxes of `apart` are folded with no other, and left out of no row."""
    return _Composer(scene, is_open, folding, apart).compose()


class _Composer:
    def __init__(self, scene: Scene, is_open: IsOpen, folding: Folding, apart: Collection[Box]) -> None:
        self._scene = scene
        self._is_open = is_open
        self._apart = apart
        self._folding = folding
        folds = folding.modules or folding.passes
        self._alike: Likeness | None = number_alike(scene, is_open, apart) if folds else None
        self._num_nodes = self._num_clusters = 0
        self._num_leaves: dict[Box, int] = {}
        self._around: list[Cluster] = []
        """The clusters that are being filled, the outermost first."""
        self._place: dict[int, tuple[Node, int]] = {}
        """By leaf its node, and the number of the like sibling that it is in."""

    def compose(self) -> Composition:
        top = self._cluster([self._scene.top], [self._scene.top], -1)
        node_of = [self._place[leaf.index][0] for leaf in self._scene.leaves]
        return Composition(top, list(self._arrows()), node_of)

    def _part(self, siblings: Sequence[Item], everyone: Sequence[Item], level: int) -> Node | Cluster:
        """What shows like siblings; `everyone` has those in the like siblings of outer clusters as well."""
        first = siblings[0]
        if isinstance(first, Leaf) or first.only_leaf is not None:
            return self._node("op", siblings, everyone)
        if not self._is_open(first, level):
            return self._node("module", siblings, everyone)
        return self._cluster([item for item in siblings if isinstance(item, Box)], everyone, level)

    def _cluster(self, siblings: list[Box], everyone: Sequence[Item], level: int) -> Cluster:
        cluster = self._new_cluster(siblings, len(siblings), (siblings[0], siblings[-1]))
        cluster.siblings = len(everyone)
        self._around.append(cluster)
        inside = [item.items for item in everyone if isinstance(item, Box)]
        repeats = self._repeats(inside[0], level + 1)
        left_out = {rest.start: rest for rest in self._left_out(inside[0], repeats, level + 1)}
        at = 0
        while at < len(repeats):
            rest = left_out.get(at)
            if rest is None:
                cluster.parts.append(self._repeat(inside, repeats[at], level + 1))
                at += 1
            else:
                cluster.parts.append(self._rest(inside, repeats[at].start, repeats[rest.stop - 1].stop))
                at = rest.stop
        self._around.pop()
        return cluster

    def _repeats(self, items: Sequence[Item], level: int) -> list[Repeat]:
        if self._alike is None:
            return [Repeat(at, 1, 1) for at in range(len(items))]
        sizes = [self._size(item, level) for item in items]
        return list(find_repeats(items, self._alike, sizes, passes=self._folding.passes))

    def _size(self, item: Item, level: int) -> int:
        """How many nodes an item takes, about."""
        if isinstance(item, Leaf) or item.only_leaf is not None or not self._is_open(item, level):
            return 1
        if item not in self._num_leaves:
            self._num_leaves[item] = sum(1 for _ in item.leaves())
        return self._num_leaves[item]

    def _left_out(self, items: Sequence[Item], repeats: Sequence[Repeat], level: int) -> list[range]:
        """The repeats that are not shown."""
        most = self._folding.most_nodes
        if most is None:
            return []
        groups = [items[repeat.start : repeat.start + repeat.period] for repeat in repeats]
        sizes = [sum(self._size(item, level) for item in group) for group in groups]
        return middles_of(sizes, [any(item in self._apart for item in group) for group in groups], most)

    def _repeat(self, inside: Sequence[Sequence[Item]], repeat: Repeat, level: int) -> Node | Cluster:
        """What shows one repeat of the first of some like boxes, and the same one of the others."""

        def part(offset: int) -> Node | Cluster:
            places = range(repeat.start + offset, repeat.stop, repeat.period)
            siblings = [inside[0][at] for at in (places if repeat.period == 1 else places[:1])]
            return self._part(siblings, [items[at] for items in inside for at in places], level)

        if repeat.period == 1:
            return part(0)
        cluster = self._new_cluster([], repeat.times, (inside[0][repeat.start], inside[0][repeat.stop - 1]))
        cluster.siblings = len(inside) * repeat.times
        self._around.append(cluster)
        cluster.parts += map(part, range(repeat.period))
        self._around.pop()
        return cluster

    def _rest(self, inside: Sequence[Sequence[Item]], start: int, stop: int) -> Node:
        left_out = [item for items in inside for item in items[start:stop]]
        return self._node("rest", inside[0][start:stop], left_out)

    def _new_cluster(self, boxes: list[Box], times: int, span: tuple[Item, Item]) -> Cluster:
        self._num_clusters += 1
        return Cluster(f"f{self._num_clusters}", boxes, times, span)

    def _node(self, kind: NodeKind, items: Sequence[Item], everyone: Sequence[Item]) -> Node:
        start = next(leaves_of(items[0])).start
        node = Node(f"n{self._num_nodes}", kind, list(items), self._num_nodes, start)
        self._num_nodes += 1
        width = len(items) if kind == "rest" else 1
        node.siblings, node.around = len(everyone) // width, tuple(self._around)
        for number, item in enumerate(everyone):
            node.num_runs += _runs_of(item, kind)
            for leaf in leaves_of(item):
                self._place[leaf.index] = node, number // width
        return node

    def _arrows(self) -> Iterator[Arrow]:
        found: dict[tuple[int, int, bool], Arrow] = {}
        for link in self._scene.links:
            source, sibling = self._place[link.source.index]
            target, other = self._place[link.target.index]
            if source is target and not _loops(source, link, sibling != other):
                continue
            common = siblings_in_common(source, target)
            step = other // (target.siblings // common) - sibling // (source.siblings // common)
            later = source.start < target.start and (link.later or step != 0)
            key = source.order, target.order, later
            arrow = found.get(key) or found.setdefault(key, Arrow(source, target, later=later))
            arrow.links.append(link)
            arrow.numbers.append((sibling, other))
        yield from found.values()


def siblings_in_common(source: Node, target: Node) -> int:
    """How many like siblings the innermost cluster stands for that holds two nodes."""
    pairs = takewhile(lambda pair: pair[0] is pair[1], zip(source.around, target.around))
    return [cluster.siblings for cluster, _ in pairs][-1]


def _runs_of(item: Item, kind: NodeKind) -> int:
    if kind == "module" and isinstance(item, Box):
        return len(item.calls)
    return sum(len(leaf.ops) for leaf in leaves_of(item))


def _loops(node: Node, link: Link, between_siblings: bool) -> bool:
    """Whether a link from a node to itself leaves what it shows and enters it again."""
    if node.kind == "op":
        return between_siblings or link.source is link.target
    return node.kind == "module" and (between_siblings or _crosses_calls(node, link))


def _crosses_calls(node: Node, link: Link) -> bool:
    box = node.box
    return box is not None and crosses_calls(link, box)
