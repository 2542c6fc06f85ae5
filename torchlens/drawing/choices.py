"""What a caller may choose about a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final, cast, get_args

from torchlens.drawing.dot import Direction
from torchlens.drawing.quantities import ColorBy
from torchlens.drawing.rendering import Program
from torchlens.drawing.wishes import Modules
from torchlens.errors import OptionError

_OF_PAGES: Final = ("rolled", "color_by", "time_limit", "statistics")
"""Options that a page has a use for: modules are opened and closed in it."""


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
        if self.direction not in get_args(Direction):
            raise OptionError(
                f"direction is {self.direction!r}; it is one of {', '.join(map(repr, get_args(Direction)))}"
            )
        depth = cast("object", self.depth)
        if depth is not None and (isinstance(depth, bool) or not isinstance(depth, int) or depth < 0):
            raise OptionError(
                f"depth is {depth!r}; give how many levels of modules to open, 0 or more, or None for "
                "as many as stay readable"
            )

    def refuse_for_page(self) -> None:
        """Raise for what was chosen and means nothing on a page."""
        for each in fields(self):
            if each.name not in _OF_PAGES and getattr(self, each.name) != each.default:
                raise OptionError(
                    f"{each.name}= is for pictures; on a page one opens and closes modules oneself: leave it "
                    "out, or write .svg, .png, .pdf or .dot"
                )
