"""TEMP"""

from collections.abc import Sequence

from torchlens.drawing.quantities import Quantity
from torchlens.drawing.scene import Scene


def page_of(
    scenes: Sequence[Scene], *, title: str, color_by: Quantity | None = None, statistics: bool = True
) -> str:
    """x"""
    return "<html>"
