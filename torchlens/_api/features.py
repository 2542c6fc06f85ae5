"""The features that a trace's views reach through their reader."""

from __future__ import annotations

from torchlens._trace.features import Page
from torchlens._trace.layer import Layer
from torchlens._trace.op import Op
from torchlens.report.details import layer_details, op_details


class AllFeatures:
    """Describing by `report`."""

    def describe_op(self, op: Op) -> Page:
        return op_details(op)

    def describe_layer(self, layer: Layer) -> Page:
        return layer_details(layer)
