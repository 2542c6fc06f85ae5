"""One scene as plain data: its parts, their layouts and the links."""

from __future__ import annotations

import math
from typing import Final

from torchlens._trace.module import ModuleCall
from torchlens.drawing.arguments import argument_name
from torchlens.drawing.page.borders import Inside, borders_of
from torchlens.drawing.page.columns import Columns, Plain, rounded
from torchlens.drawing.page.parts import MOST_ITEMS, Part, Parts, parts_of, starts_of
from torchlens.drawing.page.templates import RANK_GAP, SLOT, Plan, Template, plan_of, templates_of
from torchlens.drawing.page.texts import Text, text_of
from torchlens.drawing.params import num_params
from torchlens.drawing.scene import Box, Link, Mark, Scene
from torchlens.report.amounts import shape_text

_KINDS = ("op", "module", "group")
_STATUSES = (None, "both", "removed", "added")
_COURSES = ((False, False), (True, False), (False, True))
"""Of an edge: whether it goes back, and whether it goes forward to a later pass."""
_FURTHEST: Final = 1e308
"""Stands for a distance without bound, which JSON does not have."""


def written_constants() -> dict[str, Plain]:
    """What the page's script has to know of how scenes are written and laid out."""
    return {
        "kinds": _KINDS,
        "statuses": [status or "" for status in _STATUSES],
        "slot": SLOT,
        "gap": RANK_GAP,
        "readable": MOST_ITEMS,
    }


def written_scene(scene: Scene, columns: Columns, time_limit: float) -> dict[str, Plain]:
    """A scene; `columns` takes in its ops and strings."""
    parts = parts_of(scene)
    borders = borders_of(parts, scene.links)
    digits = len(str(len(scene.leaves)))
    texts = [text_of(part, digits) for part in parts.all]
    plans = {index: _plan(inside, parts.all[index].parts, texts) for index, inside in borders.insides.items()}
    distinct = {plan: number for number, plan in enumerate(dict.fromkeys(plans.values()))}
    return {
        "rolled": scene.rolled,
        "parts": _parts(parts, texts, columns) | {"template": _template_numbers(parts, plans, distinct)},
        "modules": [_modules(part, columns) for part in parts.all if part.boxes],
        "marks": _marks(parts, columns),
        "templates": [_template(template) for template in templates_of(list(distinct), time_limit)],
        "loops": [[loop.box.index, loop.edge, loop.link] for loop in borders.loops],
        "links": _links(borders.ways, parts, columns),
    }


def _plan(inside: Inside, items: list[Part], texts: list[Text]) -> Plan:
    sizes = [(texts[item.index].width, texts[item.index].height) for item in items]
    return plan_of(inside, sizes, starts_of(items))


def _template_numbers(parts: Parts, plans: dict[int, Plan], distinct: dict[Plan, int]) -> Plain:
    return [distinct[plans[part.index]] if part.index in plans else -1 for part in parts.all]


def _parts(parts: Parts, texts: list[Text], columns: Columns) -> dict[str, Plain]:
    """Column by column. Ops are written as the number of the only one, or a list."""
    return {
        "kind": [_KINDS.index(part.kind) for part in parts.all],
        "parent": [-1 if part.parent is None else part.parent.index for part in parts.all],
        "title": [columns.text(text.title) for text in texts],
        "tag": [columns.text(text.tag) for text in texts],
        "second": [columns.text(text.second) for text in texts],
        "third": [columns.text(text.third) for text in texts],
        "badge": [columns.text(text.badge) for text in texts],
        "width": [text.width for text in texts],
        "height": [text.height for text in texts],
        "ops": [_ops(part, columns) for part in parts.all],
        "label": [columns.text(None if part.leaf is None else part.leaf.label) for part in parts.all],
    }


def _ops(part: Part, columns: Columns) -> Plain:
    if part.leaf is None:
        return -1
    numbers: list[Plain] = [columns.op(op) for op in part.leaf.ops]
    return numbers[0] if len(numbers) == 1 else numbers


def _modules(part: Part, columns: Columns) -> Plain:
    """The part's number, names of what ran no op in it, then for each box its facts."""
    return [part.index, columns.texts(part.silent), *(_module(box, columns) for box in part.boxes)]


def _module(box: Box, columns: Columns) -> Plain:
    """Label, address, class, labels of its calls, own parameters, and how many numbers are in all below."""
    calls = _calls(box)
    own = [f"{param.address} {shape_text(param.shape)}" for param in calls[0].module.params] if calls else []
    return [
        *(columns.text(word) for word in (box.label, box.address, box.type_name)),
        columns.texts(call.label for call in calls),
        columns.texts(own),
        num_params(calls[0].module) if calls else 0,
    ]


def _calls(box: Box) -> list[ModuleCall]:
    """The calls it stands for; none for what is outside all calls, and where no op of their run is in it."""
    views = box.views if box.parent is not None else None
    return [] if views is None else [views.module_call(call) for call in box.calls]


def _marks(parts: Parts, columns: Columns) -> Plain:
    """What a scene of two runs says: the part's number, status, distance, text, second op, whether equal."""
    found: list[Plain] = []
    for part in parts.all:
        mark = None if part.leaf is None else part.leaf.mark
        if mark is not None:
            status = _STATUSES.index(mark.status)
            twin = -1 if mark.twin is None else columns.op(mark.twin)
            distance, text = _distance(mark), columns.text(mark.text)
            found.append([part.index, status, distance, text, twin, int(mark.equal)])
        elif part.boxes and part.boxes[0].status is not None:
            found.append([part.index, _STATUSES.index(part.boxes[0].status), None, -1, -1, 0])
    return found


def _distance(mark: Mark) -> float | None:
    return _FURTHEST if mark.distance == math.inf else rounded(mark.distance)


def _argument_names(link: Link) -> list[str]:
    return [argument_name(link.target.first, position) for position in link.positions]


def _template(template: Template) -> Plain:
    return {
        "size": [*template.size],
        "items": [number for item in template.items for number in item[:2]],
        "entries": [*template.entries],
        "exits": [*template.exits],
        "edges": [
            [edge.start, edge.end, _COURSES.index((edge.back, edge.later)), *edge.points]
            for edge in template.edges
        ],
    }


def _links(ways: list[tuple[Link, list[int]]], parts: Parts, columns: Columns) -> dict[str, Plain]:
    links = [link for link, _ in ways]
    return {
        "source": [parts.of_leaf[link.source.index].index for link in links],
        "target": [parts.of_leaf[link.target.index].index for link in links],
        "count": [len(link.edges) for link in links],
        "shape": [columns.text(str(link.shape)) for link in links],
        "names": [columns.texts(_argument_names(link)) for link in links],
        "status": [_STATUSES.index(link.status) for link in links],
        "way": [[*way] if len(way) > 1 else way[0] for _, way in ways],
    }
