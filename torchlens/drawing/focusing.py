"""One module with its surroundings: what is in it, and what that is linked to."""

from __future__ import annotations

from collections.abc import Collection

from torchlens.drawing.composition import Cluster, Composition, Node
from torchlens.drawing.scene import Box


def cut_out(composition: Composition, focus: Collection[Box]) -> Composition:
    """The composition without nodes that are neither in the boxes nor linked to what is in them."""
    inside = {composition.node_of[leaf.index] for box in focus for leaf in box.leaves()}
    arrows = [arrow for arrow in composition.arrows if {arrow.source, arrow.target} & inside]
    kept = inside.union(*((arrow.source, arrow.target) for arrow in arrows))
    top = composition.top
    top.parts = _kept(top, kept)
    return Composition(top, arrows, composition.node_of)


def _kept(cluster: Cluster, kept: set[Node]) -> list[Node | Cluster]:
    parts: list[Node | Cluster] = []
    for part in cluster.parts:
        if isinstance(part, Cluster):
            part.parts = _kept(part, kept)
            parts += [part] if part.parts else []
        elif part in kept:
            parts.append(part)
    return parts
