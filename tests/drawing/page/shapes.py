"""Models whose pictures differ in kind: blocks with shortcuts, boxes in boxes, loops, a long flat run."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchlens as tl
from torchlens._api.trace import Trace
from torchlens.drawing.one_run import build_scene
from torchlens.drawing.page import page_of
from torchlens.drawing.quantities import Quantity


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(2, 2, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(2)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(2, 2, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(self.conv2(self.relu(self.bn1(self.conv1(x)))) + x)


class SmallResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 2, 1)
        self.stages = nn.ModuleList(nn.Sequential(Residual(), Residual()) for _ in range(2))
        self.fc = nn.Linear(2, 3)

    def forward(self, image: Tensor) -> Tensor:
        x = self.stem(image)
        for stage in self.stages:
            x = stage(x)
        return self.fc(x.mean((-1, -2)))


class Level(nn.Module):
    """A U-Net: each level holds the next, and joins what came past it."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.down = nn.Linear(4, 4)
        self.inner = Level(depth - 1) if depth else None
        self.up = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        skip = torch.relu(self.down(x))
        deep = skip * 2 if self.inner is None else self.inner(skip)
        return torch.tanh(self.up(torch.cat([skip, deep], -1)))


class Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gates = nn.Linear(6, 16)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        i, f, g, o = self.gates(torch.cat([x, h], -1)).chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = Cell()
        self.mix = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = c = torch.zeros(1, 4)
        for step in range(x.shape[0]):
            h, c = self.cell(x[step], h, c)
            h = F.relu(self.mix(h))
        return h


class OverTime(nn.Module):
    """A loop whose call has two outputs, both of which it reads again."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros(1, 3), torch.zeros(1, 3)
        for step in range(x.shape[0]):
            state = self.cell(x[step], state)
        return state[0]


class Flat(nn.Module):
    def __init__(self, num_ops: int) -> None:
        super().__init__()
        self.num_ops = num_ops

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.num_ops // 4):
            x = torch.relu(torch.tanh(x) + x * 0.5)
        return x


def traced(name: str) -> Trace:
    """A trace of one of the models, by its name."""
    torch.manual_seed(0)
    models = {
        "resnet": lambda: (SmallResNet().eval(), torch.randn(1, 1, 4, 4)),
        "unet": lambda: (Level(3), torch.randn(2, 4)),
        "recurrent": lambda: (Recurrent(), torch.randn(5, 1, 2)),
        "over_time": lambda: (OverTime(), torch.randn(5, 1, 2)),
        "flat": lambda: (Flat(500), torch.randn(1, 3)),
        "three_groups": lambda: (Flat(120), torch.randn(1, 3)),
    }
    return tl.trace(*models[name]())


def html_of(trace: Trace, *, color_by: Quantity | None = None, statistics: bool = True) -> str:
    """The page of a run, unrolled and rolled."""
    scenes = [build_scene(trace._views, rolled=rolled) for rolled in (False, True)]
    return page_of(scenes, title="A model", color_by=color_by, statistics=statistics)
