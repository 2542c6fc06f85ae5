"""Takes leaves out of a scene: those that a caller hides, and state that is told beside its readers."""

from __future__ import annotations

from collections.abc import Collection

from torchlens.drawing.scene import Box, Leaf, Link, Scene, numbered_leaves


def without(scene: Scene, hidden: Collection[Leaf]) -> Scene:
    """A scene in which what flowed through hidden leaves flows past them; boxes with nothing in them go too.

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
    into: dict[Leaf, list[Link]] = {}
    for link in scene.links:
        if link.target in out:
            into.setdefault(link.target, []).append(link)
    found: dict[tuple[int, int], Link] = {}
    for link in scene.links:
        if link.target in out:
            continue
        for source in _visible_sources(link.source, into, out):
            ends = kept[source], kept[link.target]
            key = ends[0].index, ends[1].index
            past = found.get(key) or found.setdefault(key, Link(*ends, status=link.status))
            past.edges.update(link.edges)
            past.positions.update(link.positions)
            past.shape.merge(link.shape)
            past.status = link.status if past.status == link.status else "both"
    return list(found.values())


def _visible_sources(leaf: Leaf, into: dict[Leaf, list[Link]], out: set[Leaf]) -> list[Leaf]:
    """The leaf itself or, if it is hidden, those whose data it passes on."""
    found: dict[Leaf, None] = {}
    seen: set[Leaf] = set()
    waiting = [leaf]
    while waiting:
        each = waiting.pop()
        if each in seen:
            continue
        seen.add(each)
        if each in out:
            waiting += [link.source for link in into.get(each, ())]
        else:
            found[each] = None
    return list(found)
