"""One interactive page of a run: a single file that needs no server and no network."""

from __future__ import annotations

from collections.abc import Sequence

from torchlens.drawing.page.columns import Columns
from torchlens.drawing.page.document import document
from torchlens.drawing.page.scenes import written_scene
from torchlens.drawing.quantities import Quantity
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
    columns = Columns(statistics=statistics)
    written = [written_scene(scene, columns, color_by, time_limit) for scene in scenes]
    name = None if color_by is None else color_by.name
    adds_up = color_by is not None and color_by.adds_up
    return document(
        title, {"title": title, "color": [name, adds_up], "scenes": [*written], **columns.written()}
    )
