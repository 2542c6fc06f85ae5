"""What the reading half asks of features above it, handed in so that imports point one way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torchlens._trace.layer import Layer
    from torchlens._trace.op import Op


class Page(Protocol):
    """Text for people, which notebooks show as HTML."""

    def __str__(self) -> str: ...
    def _repr_html_(self) -> str: ...


class Features(Protocol):
    """Describing one thing at length."""

    def describe_op(self, op: Op) -> Page: ...
    def describe_layer(self, layer: Layer) -> Page: ...
