"""What stands on a node, and how large the node must be for it."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from torchlens.drawing.page.parts import Part
from torchlens.drawing.scene import Box, Mark, Status, below
from torchlens.report.amounts import quantity

_TITLE_EM: Final = 13
_SMALL_EM: Final = 11
_CHARACTER: Final = 0.6
_BOLD: Final = 0.68
"""Of an em, generously: system fonts take about 0.53 and 0.57, the widest of them this."""
_SIGN: Final = 24
"""What opens a module."""
_MARK: Final = 16
"""The + or − in front of a name."""
_PADDING: Final = 28
_STEP: Final = 24
"""Widths are multiples of this, so that modules alike but for a number share a layout."""
_NARROWEST: Final = 120
_WIDEST: Final = 336
_NUMBER: Final = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Text:
    """The words on a node, and its size in pixels while it is closed."""

    title: str
    tag: str
    """The class, beside the title."""
    second: str
    third: str
    badge: str
    width: int
    height: int


def text_of(part: Part, digits: int) -> Text:
    """The words and size of a part; numbers in names are given room for `digits` digits."""
    if part.leaf is not None:
        return _op_text(part, digits)
    title, tag, badge = _heading(part)
    num_ops = quantity(_count(part), "op")
    return _sized(Text(title, tag, num_ops, "", badge, 0, 46), digits, _SIGN + _mark(part))


def _mark(part: Part) -> int:
    """The room for what marks that one of two runs has it alone."""
    if part.leaf is not None:
        return 0 if part.leaf.mark is None or part.leaf.mark.status == "both" else _MARK
    return _MARK if part.boxes and part.boxes[0].status in ("added", "removed") else 0


def _heading(part: Part) -> tuple[str, str, str]:
    if part.kind == "group":
        return (
            f"{_name(part.parts[0], first=True)} … {_name(part.parts[-1], first=False)}",
            "",
            _changes(part),
        )
    box = part.boxes[0]
    badge = f"×{len(box.calls)}" if len(box.calls) > 1 else _changes(part)
    tag = box.type_name if box.address else ""
    return box.name, tag, badge


def _changes(part: Part) -> str:
    """How many of the ops in it one of two runs has alone, where it is of both."""
    if part.boxes and part.boxes[0].status in ("added", "removed"):
        return ""
    found = Counter(mark.status for mark in _marks(part))
    signs: tuple[tuple[str, Status], ...] = (("+", "added"), ("−", "removed"))
    return " ".join(f"{sign}{found[status]}" for sign, status in signs if found[status])


def _marks(part: Part) -> Iterator[Mark]:
    if part.leaf is None:
        for inner in part.parts:
            yield from _marks(inner)
    elif part.leaf.mark is not None:
        yield part.leaf.mark


def _name(part: Part, *, first: bool) -> str:
    """A short name of a group's end."""
    while part.kind == "group":
        part = part.parts[0 if first else -1]
    if part.boxes:
        return part.boxes[0].name
    return "" if part.leaf is None else part.leaf.label


def _op_text(part: Part, digits: int) -> Text:
    assert part.leaf is not None
    ops = part.leaf.ops
    badge = f"×{len(ops)}" if len(ops) > 1 else ""
    look, label = part.leaf.look, part.leaf.label
    if part.boxes:
        title = _path(part.boxes)
        return _sized(Text(title, part.boxes[-1].type_name, label, look, badge, 0, 60), digits, _mark(part))
    name = below(ops[0].name or "", part.leaf.box.address)
    if name and name != label:
        return _sized(Text(name, ops[0].kind, look, "", badge, 0, 46), digits, _mark(part))
    return _sized(Text(label, "", look, "", badge, 0, 46), digits, _mark(part))


def _path(boxes: list[Box]) -> str:
    """The name of the innermost of modules that hold nothing but one another."""
    if len(boxes) == 1:
        return boxes[0].name
    around = "" if boxes[0].parent is None else boxes[0].parent.address
    found = below(boxes[-1].label, around)
    return boxes[-1].label if found[:1].isdigit() else found


def _count(part: Part) -> int:
    return 1 if part.leaf is not None else sum(map(_count, part.parts))


def _sized(text: Text, digits: int, sign: int = 0) -> Text:
    head = _extent(text.title, _TITLE_EM * _BOLD / _CHARACTER, digits)
    if text.tag:
        head += 9 + _extent(text.tag, _SMALL_EM, 0)
    if text.badge:
        head += 18 + _extent(text.badge, _SMALL_EM, 2)
    below = max(_extent(line, _SMALL_EM, digits if line is text.second else 0) for line in text_lines(text))
    wanted = max(head + sign, below) + _PADDING
    width = min(max(-(-int(wanted) // _STEP) * _STEP, _NARROWEST), _WIDEST)
    return Text(text.title, text.tag, text.second, text.third, text.badge, width, text.height)


def text_lines(text: Text) -> tuple[str, str]:
    """The lines below the first."""
    return text.second, text.third


def _extent(text: str, em: float, digits: int) -> float:
    """Pixels that a line takes, its numbers with at least so many digits."""
    short = text[:200]
    padded = _NUMBER.sub(lambda found: found[0].rjust(digits, "0"), short) if digits else short
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in padded)
    return (len(padded) + wide) * em * _CHARACTER
