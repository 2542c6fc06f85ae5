"""One interactive page of a run: a single file that needs no server and no network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from torchlens.drawing.page.columns import Columns, Plain
from torchlens.drawing.page.document import document
from torchlens.drawing.page.scenes import written_constants, written_scene
from torchlens.drawing.quantities import Quantity, QuantityName, quantity_of
from torchlens.drawing.scene import Scene


def page_of(
    scenes: Sequence[Scene],
    *,
    title: str,
    color_by: Quantity | None = None,
    statistics: bool = True,
    time_limit: float = 60.0,
) -> str:
    """The HTML of a page that shows one of the scenes at a time: a run unrolled or rolled, or two runs.

    Without `statistics` values are not read, which is what takes longest in a large trace. `time_limit` is in
    seconds, for the layouts of each scene.
    """
    own = None if color_by is None or _is_named(color_by) else color_by
    columns = Columns(statistics=statistics, own=own)
    written = [written_scene(scene, columns, time_limit) for scene in scenes]
    color: list[Plain] | None = None if color_by is None else [color_by.name, color_by.adds_up, own is None]
    data = {"title": title, "color": color, "scenes": written, **written_constants(), **columns.written()}
    return document(title, data)


def _is_named(quantity: Quantity) -> bool:
    """Whether it is one of those that each page has, and no function that happens to be called like one."""
    names: tuple[QuantityName, ...] = get_args(QuantityName)
    return any(quantity == quantity_of(name) for name in names)
