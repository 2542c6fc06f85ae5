"""Models without memory: traced whole, with shapes, FLOPs and the bytes of their parameters."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchlens as tl
from tests.programs.memory import MIB, resident_peak
from tests.programs.reading import lint


class Convolutional(nn.Module):
    """Wide enough that one of its values would take a gigabyte."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4096, 3, padding=1)
        self.norm = nn.BatchNorm2d(4096)
        self.head = nn.Linear(4096, 100_000)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.conv(x)), inplace=True)
        x.mul_(2)
        return self.head(x.mean((2, 3)))


def test_a_convolutional_model_in_training() -> None:
    with torch.device("meta"):
        model = Convolutional().train()
    before = resident_peak()
    trace = tl.trace(model, torch.empty(1, 3, 256, 256, device="meta"))
    text = str(trace.summary())
    assert resident_peak() - before < 200 * MIB
    lint(trace)
    assert trace.provenance.verified
    assert trace.copied_bytes == 0
    assert trace["conv2d_1"].shape == (1, 4096, 256, 256)
    assert trace["conv2d_1"].flops == 2 * 256 * 256 * 4096 * 3 * 3 * 3
    assert trace["linear_1"].flops == 2 * 4096 * 100_000
    assert trace.output.shape == (1, 100_000) and trace.output.is_meta
    assert sum(p.numel for p in trace.params) == 4096 * 27 + 4096 + 2 * 4096 + 4096 * 100_000 + 100_000
    assert "0 B kept" in text and "meta" in text
    assert [len(buffer.versions) for buffer in trace.buffers] == [2, 2, 2]


def test_a_meta_trace_checks_what_can_be_checked() -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True))
    report = tl.trace(model, torch.empty(2, 8, device="meta")).check()
    assert report
    assert any("no bits" in finding.text for finding in report.unchecked)
