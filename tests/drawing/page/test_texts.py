"""The words on a page's nodes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import torchlens as tl
from torchlens.drawing.one_run import build_scene
from torchlens.drawing.page.parts import parts_of
from torchlens.drawing.page.texts import text_of


class GrowsFiner(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        for dtype in (torch.float32, torch.float64, torch.float64):
            x = torch.relu(x.to(dtype))
        return x


def test_a_layer_whose_passes_gave_several_dtypes_names_each() -> None:
    trace = tl.trace(GrowsFiner(), torch.ones(2))
    parts = parts_of(build_scene(trace._views, rolled=True))
    relu = next(part for part in parts.all if part.leaf is not None and part.leaf.label == "relu_1")
    assert text_of(relu, 1).second == "2 float32, float64"
