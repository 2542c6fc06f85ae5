"""Tiny models whose pictures are kept as DOT text: `python -m tests.drawing.golden_pictures` writes it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import torchlens as tl
from tests import models
from tests.programs.examples import EXAMPLES
from torchlens.drawing.picture import Picture

FOLDER = Path(__file__).with_name("golden")


class SixBlocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(models.ResidualBlock() for _ in range(6))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class Halves(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x / 2)


class HalvesAndShifts(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(torch.relu(x / 2) + 1)


def example(name: str) -> Callable[[], Any]:
    """The trace of an example."""

    def traced() -> Any:
        torch.manual_seed(0)
        found = EXAMPLES[name]
        return tl.trace(found.build(), found.inputs(), input_kwargs=found.kwargs())

    return traced


def six_blocks() -> Any:
    return tl.trace(SixBlocks(), torch.ones(3, 4))


def one_block() -> Any:
    return tl.trace(models.ResidualBlock(), torch.ones(3, 4))


@dataclass(frozen=True)
class Golden:
    trace: Callable[[], Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    closed: tuple[str, ...] = ()
    """Addresses of the modules that the picture shows as one node each."""
    like: Mapping[str, str] = field(default_factory=dict)
    """Addresses of modules that are not drawn, since another, which is, stands for them."""

    def draw(self) -> tuple[Any, Picture]:
        trace = self.trace()
        return trace, trace.draw(**self.options)


FOLDED = {f"blocks.{at}": "blocks.0" for at in range(1, 6)}
SHOWS = tl.func("getitem")

GOLDEN: dict[str, Golden] = {
    "residual": Golden(one_block),
    "residual_right": Golden(one_block, {"direction": "right"}),
    "reused_block": Golden(example("ReusedBlock")),
    "reused_block_rolled": Golden(example("ReusedBlock"), {"rolled": True}),
    "reused_block_closed": Golden(
        example("ReusedBlock"), {"rolled": True, "collapse": "block"}, closed=("block",)
    ),
    "six_blocks_folded": Golden(six_blocks, like=FOLDED),
    "six_blocks_unfolded": Golden(six_blocks, {"fold": False}),
    "six_blocks_closed": Golden(six_blocks, {"collapse": "ResidualBlock"}, closed=("blocks.0",), like=FOLDED),
    "six_blocks_flops": Golden(six_blocks, {"color_by": "flops"}, like=FOLDED),
    "six_blocks_focus": Golden(
        six_blocks, {"focus": "blocks.2"}, closed=tuple(f"blocks.{at}" for at in (0, 1, 3, 4, 5))
    ),
    "looped": Golden(example("Looped")),
    "looped_rolled": Golden(example("Looped"), {"rolled": True}),
    "steps_through_time_rolled": Golden(example("StepsThroughTime"), {"rolled": True}),
    "writes_through_views": Golden(example("WritesThroughViews")),
    "hidden_views": Golden(example("WritesThroughViews"), {"hide": SHOWS}),
    "hidden_in_reuse": Golden(example("ReusedRelu"), {"hide": tl.func("relu"), "rolled": True}),
    "buffers_written": Golden(example("normalized_convolution")),
    "several_outputs": Golden(example("SeveralOutputs")),
    "tied_weights": Golden(example("TiedWeights")),
    "shared_module_rolled": Golden(example("SharedByTwoParents"), {"rolled": True}),
}


def difference() -> tuple[Any, Any, Picture]:
    """Two runs in one picture."""
    first = tl.trace(Halves(), torch.ones(2, 2))
    second = tl.trace(HalvesAndShifts(), torch.full((2, 2), 2.0))
    return first, second, tl.Bundle({"before": first, "after": second}).draw()


def masked(dot: str) -> str:
    """DOT text without line numbers, which every change of a model's file moves."""
    return re.sub(r"\.py:\d+", ".py:*", dot)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    pictures = {name: golden.draw()[1] for name, golden in GOLDEN.items()}
    pictures["difference"] = difference()[-1]
    for name, picture in pictures.items():
        (FOLDER / f"{name}.dot").write_text(masked(picture.dot), encoding="utf-8")


if __name__ == "__main__":
    main()
