"""Takes leaves out of a scene: those that a caller hides, and state that is told beside its readers."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from torchlens.drawing.scene import Box, Leaf, Link, Scene, numbered_leaves


def without(scene: Scene, hidden: Collection[Leaf]) -> Scene:
    """A scene in which what flowed through hidden leaves flows past them.

    Boxes in which nothing is go as well: those of which all is hidden, calls in which no op ran, as of
    `nn.Identity`, and in a rolled scene modules whose ops stand where another called the same module before.

    A link past hidden leaves is what its last part was: its positions and shape are those of the argument
    that its target reads.
    """
    out = set(hidden)
    top = _copy(scene.top, None, out)
    assert top is not None
    leaves = numbered_leaves(top)
    kept = dict(zip((leaf for leaf in scene.leaves if leaf not in out), leaves))
    return Scene(top, leaves, _links_past(scene, out, kept), scene.rolled)


def _copy(box: Box, parent: Box | None, out: set[Leaf]) -> Box | None:
    """The box without what is hidden; None if nothing is left of it."""
    copied = Box(parent, box.address, box.type_name, box.label, box.calls, status=box.status)
    for item in box.items:
        if isinstance(item, Box):
            inner = _copy(item, copied, out)
            copied.items += [inner] if inner is not None else []
        elif item not in out:
            copied.items.append(Leaf(copied, item.ops, mark=item.mark))
    return copied if copied.items or parent is None else None


def _links_past(scene: Scene, out: set[Leaf], kept: dict[Leaf, Leaf]) -> list[Link]:
    sources = _Sources(scene, out)
    found: dict[tuple[int, int, bool], Link] = {}
    for link in scene.links:
        if link.target in out:
            continue
        for source, edges in sources.of(link).items():
            ends = kept[source], kept[link.target]
            key = ends[0].index, ends[1].index, link.later
            past = found.get(key) or found.setdefault(key, Link(*ends, status=link.status, later=link.later))
            past.edges.update(edges)
            past.positions.update(link.positions)
            past.shape.merge(link.shape)
            past.status = link.status if past.status == link.status else "both"
    return list(found.values())


class _Sources:
    """Where the data of a link comes from that is not hidden.

    A rolled layer has several ops, each of which passes on what it was given itself and nothing that another
    pass was given; otherwise a leaf has one op a run, and which it is need not be looked at.
    """

    def __init__(self, scene: Scene, out: set[Leaf]) -> None:
        self._out = out
        self._rolled = scene.rolled
        self._into: dict[Leaf, list[Link]] = {}
        for link in scene.links:
            if link.target in out:
                self._into.setdefault(link.target, []).append(link)

    def of(self, link: Link) -> dict[Leaf, dict[tuple[int, int], None]]:
        """The leaf that a link comes from or, if it is hidden, those whose data it passes on.

        With the edges of the link that each one's data takes.
        """
        if link.source not in self._out:
            return {link.source: link.edges}
        found: dict[Leaf, dict[tuple[int, int], None]] = {}
        for edge in link.edges:
            for source in self._visible(link.source, edge[0]):
                found.setdefault(source, {})[edge] = None
        return found

    def _visible(self, leaf: Leaf, op: int) -> Iterator[Leaf]:
        seen: set[tuple[Leaf, int]] = set()
        waiting = [(leaf, op)]
        while waiting:
            leaf, op = waiting.pop()
            if leaf not in self._out:
                yield leaf
            elif (leaf, op) not in seen:
                seen.add((leaf, op))
                waiting += self._before(leaf, op)

    def _before(self, leaf: Leaf, op: int) -> Iterator[tuple[Leaf, int]]:
        for link in self._into.get(leaf, ()):
            for parent, child in link.edges:
                if child == op or not self._rolled:
                    yield link.source, parent
