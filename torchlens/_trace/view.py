"""What ops, layers and modules share: light views over a reader, made when asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchlens._trace.views import Views


class View:
    """Something of a trace, by its index. Views are equal when their trace and index are."""

    __slots__ = ("_reader", "_views", "index")

    def __init__(self, views: Views, index: int) -> None:
        self._views = views
        self._reader = views.reader
        self.index = index

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._reader is self._reader and other.index == self.index

    def __hash__(self) -> int:
        return hash((type(self), id(self._reader), self.index))
