"""What a caller may choose about a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final, get_args

from torchlens.drawing.dot import Direction
from torchlens.drawing.programs import Program, check_choice, check_limit
from torchlens.drawing.quantities import ColorBy
from torchlens.drawing.wishes import Modules
from torchlens.errors import OptionError

_BY_HAND: Final = "on a page one opens and closes modules oneself"
_OF_PICTURES: Final = {
    "depth": _BY_HAND,
    "collapse": _BY_HAND,
    "focus": "the address of a page that ends in #module=ADDRESS leads to a module",
    "direction": "data flows down a page",
    "fold": "a page has every module, and few are open at first",
    "program": "graphviz-pure places the nodes of pages",
}
"""Options that a page has no use for, and why."""


@dataclass(frozen=True, slots=True)
class DrawOptions:
    """What a caller may choose about a picture; `Trace.draw` says what each means."""

    rolled: bool = False
    depth: int | None = None
    collapse: Modules | Sequence[Modules] | None = None
    focus: str | None = None
    color_by: ColorBy | None = None
    direction: Direction = "down"
    fold: bool = True
    program: Program = "graphviz-pure"
    time_limit: float = 60.0
    statistics: bool = True

    def __post_init__(self) -> None:
        check_choice("direction", self.direction, get_args(Direction))
        check_choice("program", self.program, get_args(Program))
        check_limit(self.time_limit)
        _check_depth(self.depth)
        for name in ("rolled", "fold", "statistics"):
            _check_switch(name, getattr(self, name))

    def refuse_for_page(self) -> None:
        """Raise for what was chosen and means nothing on a page."""
        for each in fields(self):
            if each.name in _OF_PICTURES and getattr(self, each.name) != each.default:
                raise OptionError(
                    f"{each.name}= is for pictures, and {_OF_PICTURES[each.name]}; leave it out, or write "
                    ".svg, .png, .pdf or .dot"
                )

    def refuse_for_picture(self) -> None:
        """Raise for what was chosen and means nothing on a picture."""
        if not self.statistics:
            raise OptionError("statistics=False is for .html pages, and pictures have none; leave it out")


def _check_depth(depth: object) -> None:
    if depth is not None and (isinstance(depth, bool) or not isinstance(depth, int) or depth < 0):
        raise OptionError(
            f"depth is {depth!r}; give how many levels of modules to open, 0 or more, or None for "
            "as many as stay readable"
        )


def _check_switch(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise OptionError(f"{name} is {value!r}; give True or False")
