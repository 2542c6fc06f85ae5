"""The models that are measured. Needs torch and the zoo only: other interpreters run the same work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass
class Case:
    title: str
    model: nn.Module
    inputs: Tensor
    middle: str
    """The module in the middle whose output is kept where one module's is."""
    quarter: str
    """The module that ends at about a quarter of the depth, where a forward is stopped."""

    def forward(self) -> Any:
        return self.model(self.inputs)


class TinyLoop(nn.Module):
    """Half of the operations are calls, half are operators; 16 elements each."""

    def __init__(self, rounds: int) -> None:
        super().__init__()
        self.rounds = rounds

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.rounds):
            x = torch.tanh(x)
            x = x + 1
        return x


class TinyOps(nn.Module):
    """Four loops, so that there is a module to keep and one to stop at."""

    def __init__(self, count: int) -> None:
        super().__init__()
        rounds = count // 2
        self.loops = nn.ModuleList(TinyLoop((rounds + part) // 4) for part in range(4))

    def forward(self, x: Tensor) -> Tensor:
        for loop in self.loops:
            x = loop(x)
        return x


def import_torchvision() -> None:
    """Import torchvision also beside a torch for another device, where its custom operators are missing."""
    try:
        import torchvision
    except RuntimeError:
        for name in ("nms", "qnms"):
            VISION_OPS.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision  # noqa: F401


VISION_OPS = torch.library.Library("torchvision", "FRAGMENT")  # dropped, it would take its operators along


def resnet18(_: int) -> Case:
    import_torchvision()
    from torchvision.models import resnet18 as build

    model = build(weights=None).eval()
    return Case("ResNet-18, 1x3x224x224", model, torch.randn(1, 3, 224, 224), "layer2.0", "layer1.1")


def gpt2(title: str, **config: int) -> Case:
    import_torchvision()  # transformers imports it wherever it is installed
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(**config)).eval()
    tokens = torch.randint(model.config.vocab_size, (1, 32))
    return Case(title, model, tokens, "transformer.h.6", "transformer.h.2")


NARROW = {"n_embd": 64, "n_head": 4, "vocab_size": 1000, "bos_token_id": 0, "eos_token_id": 0}


def gpt2_small(_: int) -> Case:
    return gpt2("GPT-2 small, 1x32 tokens")


def gpt2_narrow(_: int) -> Case:
    return gpt2("GPT-2, 12 layers of width 64, 1x32 tokens", **NARROW)


def tiny(count: int) -> Case:
    model = TinyOps(count).eval()
    return Case(f"{count:,} tiny operations", model, torch.ones(16), "loops.1", "loops.0")


CASES: dict[str, Callable[[int], Case]] = {
    "resnet18": resnet18,
    "gpt2": gpt2_small,
    "gpt2-narrow": gpt2_narrow,
    "tiny": tiny,
}


def build(name: str, tiny_ops: int) -> Case:
    torch.manual_seed(0)
    return CASES[name](tiny_ops)
