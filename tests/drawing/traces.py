"""Traces that several tests of pictures draw, each made once; and pictures as their words."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

import torchlens as tl
from tests.drawing.reading_dot import Drawn, read_dot
from tests.programs.examples import EXAMPLES


@cache
def traced(name: str) -> Any:
    """The trace of an example."""
    torch.manual_seed(0)
    example = EXAMPLES[name]
    return tl.trace(example.build(), example.inputs(), input_kwargs=example.kwargs())


def drawn(trace: Any, **options: Any) -> Drawn:
    """What the picture of a trace shows."""
    return read_dot(trace.draw(**options).dot)


class Runs(nn.Module):
    """A module around a function of itself and its input, so that a test can say what runs where."""

    def __init__(self, function: Callable[[Any, Tensor], Any], **parts: nn.Module) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)


def flat_function(length: int) -> Callable[[Tensor], Tensor]:
    """A function of so many calls, each on a line of its own."""
    lines = [f"    x = {('torch.sin(x)', 'x * 2', 'x + 1')[at % 3]}\n" for at in range(length)]
    namespace: dict[str, Any] = {"torch": torch}
    exec(f"def flat(x):\n{''.join(lines)}    return x\n", namespace)
    return namespace["flat"]
