"""The words on nodes, clusters and arrows, as plain lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from torchlens._trace.state import Buffer, Param
from torchlens._values.geometry import dtype_name
from torchlens.drawing.arguments import argument_name
from torchlens.drawing.composition import Arrow, Cluster, Node
from torchlens.drawing.params import num_params
from torchlens.drawing.scene import Box, Item, Leaf, leaves_of, name_of
from torchlens.drawing.siblings import leaves_several, siblings_text
from torchlens.report.amounts import ShapeRange, listed, quantity, shape_text, short_count
from torchlens.report.sizes import shape_of

Style: TypeAlias = Literal["name", "type", "plain", "small"]
_MOST_NAMES = 4
_MOST_ON_LINE = 30
"""Characters of an arrow's words that stand on one line."""
_LONGEST = 60
"""Characters of a name that are shown."""


@dataclass(frozen=True, slots=True)
class Line:
    """Words that stand side by side, each with its style."""

    words: tuple[tuple[str, Style], ...]

    @property
    def text(self) -> str:
        """Without styles."""
        return " ".join(word for word, _ in self.words)


def node_lines(node: Node) -> list[Line]:
    """What a node says: its name, what it is, the shape and dtype it gave, the state it reads."""
    if node.kind == "rest":
        return [Line(((_rest(node.items), "small"),)), Line(((_ends(node.items), "small"),))]
    box, leaf = node.box, node.leaf
    times = f"×{node.times}" if node.times > 1 else ""
    lines: list[Line] = []
    if box is not None:
        lines.append(_line((_span(node.items), "name"), (_class(box), "type"), (times, "name")))
    if leaf is not None:
        passes = f"×{len(leaf.ops)}" if len(leaf.ops) > 1 else ""
        style: Style = "plain" if box is not None else "name"
        label = _labels(node) if box is None else leaf.label
        lines.append(_line((label, style), (passes or (times if box is None else ""), style)))
        lines += _leaf_lines(leaf)
        if leaf.mark is not None and node.num_runs == 1:
            lines.append(_line((leaf.mark.text, "small")))
    elif box is not None:
        lines.append(_line((_contents(box), "small")))
        lines.append(_line((_gave(box), "plain")))
    return [line for line in lines if line.words]


def cluster_lines(cluster: Cluster) -> list[Line]:
    """The title of an open module: its name, its class, and how often it runs or repeats."""
    times = f"×{cluster.times}" if cluster.times > 1 else ""
    if not cluster.boxes:
        return [_line((_ends(cluster.span), "name"), (times, "name"))]
    box = cluster.boxes[0]
    calls = f"{len(box.calls)} calls" if len(box.calls) > 1 else ""
    lines = [
        _line((_span(cluster.boxes), "name"), (times, "name")),
        _line((_class(box), "type"), (calls, "small")),
    ]
    return [line for line in lines if line.words]


def arrow_text(arrow: Arrow, num_inputs: int) -> str:
    """What an arrow carries: the argument's name where the target has several, its shape, how often.

    `num_inputs`: how many tensor arguments of the target come from ops.
    """
    shape = ShapeRange()
    for link in arrow.links:
        shape.merge(link.shape)
    names: list[str] = []
    target = arrow.links[0].target.first
    if num_inputs > 1 and arrow.target.leaf is not None and target.kind in ("call", "boundary"):
        positions = dict.fromkeys(position for link in arrow.links for position in link.positions)
        names = [shortened(argument_name(target, position)) for position in positions]
    count = arrow.count
    told = count > 1 and (
        arrow.returns or arrow.later or leaves_several(arrow) or count != arrow.target.num_runs
    )
    words = [listed(names, 3), f"{shape} ×{count}" if told else str(shape), siblings_text(arrow)]
    return _in_lines([word for word in words if word])


def _in_lines(words: Sequence[str]) -> str:
    """Words side by side, in lines that are not too long."""
    text = words[0] if words else ""
    for word in words[1:]:
        last = text.rpartition("\n")[2]
        text += ("\n" if len(last) + len(word) >= _MOST_ON_LINE else " ") + word
    return text


def tooltip(node: Node) -> str:
    """More about a node, one fact a line: whole names, and where an op was called."""
    box, leaf = node.box, node.leaf
    facts: list[str] = []
    if box is not None:
        facts.append(f"{box.label or 'root'}: {box.type_name}")
    if leaf is not None:
        op = leaf.first
        facts += [f"{leaf.label}: {op.func_name}", *(str(frame) for frame in op.call_site[-1:])]
    if node.kind == "rest":
        facts.append(", ".join(name_of(item) for item in node.items[:50]))
    return "\n".join(facts)


def amount_line(amount: str) -> Line:
    """What a node's color stands for."""
    return _line((amount, "plain"))


def _line(*words: tuple[str, Style]) -> Line:
    return Line(tuple((shortened(word), style) for word, style in words if word))


def shortened(word: str) -> str:
    """A name, of a long one its ends."""
    return word if len(word) <= _LONGEST else f"{word[: _LONGEST // 2 - 1]}…{word[-_LONGEST // 2 :]}"


def _leaf_lines(leaf: Leaf) -> Iterator[Line]:
    op = leaf.first
    if op.name is not None:
        yield _line((op.name, "type"))
    yield _line((leaf.look, "plain"))
    inside = f"{op.module.address}." if op.module.address else ""
    held = {
        entry.address: f"{entry.address.removeprefix(inside)} {_size(entry)}".strip()
        for each in leaf.ops
        for entry in (*each.params, *each.buffers)
    }
    if held:
        yield Line(((_fitting(list(held.values())), "small"),))


def _fitting(names: Sequence[str]) -> str:
    """As many names as fit a line, at least one, and how many more there are."""
    texts = (listed([shortened(name) for name in names], most) for most in range(_MOST_NAMES, 0, -1))
    return next(
        (text for text in texts if len(text) <= _LONGEST), listed([shortened(names[0]), *names[1:]], 1)
    )


def _size(held: Param | Buffer) -> str:
    return shape_text(held.shape if isinstance(held, Param) else held.versions[0].shape)


def _labels(node: Node) -> str:
    first, last = node.items[0], node.items[-1]
    return name_of(first) if first is last else f"{name_of(first)} ... {name_of(last)}"


def _span(boxes: Sequence[Item]) -> str:
    return name_of(boxes[0]) if len(boxes) == 1 else _ends(boxes)


def _ends(items: Sequence[Item]) -> str:
    return f"{name_of(items[0])} ... {name_of(items[-1])}"


def _class(box: Box) -> str:
    """Nothing for the root, whose name it is."""
    return "" if box.name == box.type_name else box.type_name


def _rest(items: Sequence[Item]) -> str:
    return f"{quantity(sum(1 for item in items for _ in leaves_of(item)), 'more op')}"


def _contents(box: Box) -> str:
    """How much is in a closed module."""
    views = box.views
    count = num_params(views.module_call(box.calls[0]).module) if views is not None else 0
    parts = [quantity(sum(1 for _ in box.leaves()), "op")]
    parts += [f"{short_count(count)} params"] if count else []
    parts += [f"{len(box.calls)} calls"] if len(box.calls) > 1 else []
    return " · ".join(parts)


def _gave(box: Box) -> str:
    """The shape and dtype of what a closed module returned first, over its calls."""
    views, shape, dtypes = box.views, ShapeRange(), dict[str, None]()
    if views is None:
        return ""
    for call in map(views.module_call, box.calls):
        if call._entry.end is not None and call.outputs:
            shape.add(shape_of(call.outputs[0]._seen))
            dtypes[dtype_name(call.outputs[0].dtype)] = None
    return f"{shape} {', '.join(dtypes)}".strip()
