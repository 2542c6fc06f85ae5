"""Which of the like siblings that are drawn once an arrow comes from and leads to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile

from torchlens.drawing.composition import Arrow, Cluster, Node, siblings_in_common
from torchlens.drawing.scene import Item, Leaf, name_of, path_to
from torchlens.report.amounts import listed


def leaves_several(arrow: Arrow) -> bool:
    """Whether it leaves several siblings of one that is drawn for all, and leads elsewhere."""
    return len(_places(arrow)[0]) > 1


def siblings_text(arrow: Arrow) -> str:
    """What a reader would not guess: that data leaves the last of like siblings and enters the first.

    `from blocks.3`, where it leaves another than the last; `to each`, where it enters all of them. Of dashed
    arrows, which go from one sibling to the next, nothing.
    """
    if arrow.returns or arrow.later:
        return ""
    sources, targets = _places(arrow)
    common = siblings_in_common(arrow.source, arrow.target)
    leaves, enters = arrow.source.siblings // common, arrow.target.siblings // common
    texts: list[str] = []
    if leaves > 1 and len(sources) < leaves and set(sources) != {leaves - 1}:
        texts.append(f"from {_listed(arrow, arrow.source, sources.values())}")
    if enters > 1 and len(targets) == enters:
        texts.append("to each")
    elif enters > 1 and set(targets) != {0}:
        texts.append(f"to {_listed(arrow, arrow.target, targets.values())}")
    return " ".join(texts)


def _places(arrow: Arrow) -> tuple[dict[int, Leaf], dict[int, Leaf]]:
    """The siblings at both ends, by their place in one sibling of the cluster around both; a leaf of each."""
    common = siblings_in_common(arrow.source, arrow.target)
    leaves, enters = arrow.source.siblings // common, arrow.target.siblings // common
    sources, targets = dict[int, Leaf](), dict[int, Leaf]()
    for link, (source, target) in zip(arrow.links, arrow.numbers):
        sources.setdefault(source % leaves, link.source)
        targets.setdefault(target % enters, link.target)
    return dict(sorted(sources.items())), dict(sorted(targets.items()))


def _around_both(arrow: Arrow) -> Sequence[Cluster]:
    pairs = zip(arrow.source.around, arrow.target.around)
    return [one for one, _ in takewhile(lambda pair: pair[0] is pair[1], pairs)]


def _listed(arrow: Arrow, node: Node, leaves: Iterable[Leaf]) -> str:
    """The names of the siblings that leaves are in."""
    outside = len(_around_both(arrow))
    folds = (cluster.span[0] for cluster in node.around[outside:] if cluster.times > 1)
    depth = _depth(next(folds, node.items[0]))
    return listed(list(dict.fromkeys(name_of(path_to(leaf)[depth]) for leaf in leaves)), 2)


def _depth(item: Item) -> int:
    return len(path_to(item.box)) if isinstance(item, Leaf) else len(path_to(item)) - 1
