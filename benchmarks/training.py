"""A training step whose loss also reads two modules' outputs: got by hooks, and through a capture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from rich.console import Group
from rich.text import Text
from torch import Tensor, nn

import torchlens as tl
from cases import NARROW, gpt2, import_torchvision
from probes import options_have, takes
from rows import NOT_BUILT
from tables import add_row, short, times_table
from timing import Rows, Samples, Work, in_turn, ratio

PLAIN_STEP = "plain step, two hooks"
TWO_KEPT = "step under trace, two modules kept"
BLOCK = "step in a capture block, two modules kept"
ALL_KEPT = "step under trace, all kept"


@dataclass
class Training:
    title: str
    model: nn.Module
    inputs: Tensor
    loss_of: Callable[[Any], Tensor]
    """Of the model's output alone."""
    kept: tuple[str, str]

    def __post_init__(self) -> None:
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-5)

    def finish(self, output: Any, kept: list[Tensor]) -> Tensor:
        auxiliary = [activation.square().mean() for activation in kept]
        loss = self.loss_of(output) + 0.01 * torch.stack(auxiliary).sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def plain_step(training: Training) -> Tensor:
    kept: list[Tensor] = []
    modules = [training.model.get_submodule(address) for address in training.kept]
    handles = [module.register_forward_hook(lambda *given: kept.append(given[-1])) for module in modules]
    output = training.model(training.inputs)
    for handle in handles:
        handle.remove()
    return training.finish(output, kept)


def kept_of(trace: Any, training: Training) -> list[Tensor]:
    return [trace.modules[address].out for address in training.kept]


def traced_step(training: Training, **options: Any) -> tuple[Tensor, Any]:
    trace = tl.trace(training.model, training.inputs, **options)
    return training.finish(trace.output, kept_of(trace, training)), trace


def block_step(training: Training, **options: Any) -> tuple[Tensor, Any]:
    with tl.capture(training.model, **options) as trace:
        output = training.model(training.inputs)
    return training.finish(output, kept_of(trace, training)), trace


def steps_of(training: Training) -> dict[str, Work | str]:
    rows: dict[str, Work | str] = {
        PLAIN_STEP: lambda: plain_step(training),
        TWO_KEPT: NOT_BUILT,
        BLOCK: NOT_BUILT,
        ALL_KEPT: lambda: traced_step(training),
    }
    if options_have("backward_ready"):
        ready = tl.options.CaptureOptions(backward_ready=True)
        kept = list(training.kept)
        if takes("trace", "save"):
            rows[TWO_KEPT] = lambda: traced_step(training, save=kept, capture=ready)
        if takes("capture", "save"):
            rows[BLOCK] = lambda: block_step(training, save=kept, capture=ready)
    return rows


def small_resnet() -> Training:
    import_torchvision()
    from torchvision.models import resnet18

    model, classes = resnet18(weights=None, num_classes=10).train(), torch.arange(8)
    return Training(
        "training step, ResNet-18, 8x3x64x64",
        model,
        torch.randn(8, 3, 64, 64),
        lambda logits: F.cross_entropy(logits, classes),
        ("layer2", "layer3"),
    )


def narrow_gpt2() -> Training:
    case = gpt2("training step, GPT-2, 12 layers of width 64, 8x32 tokens", **NARROW)
    tokens = torch.randint(NARROW["vocab_size"], (8, 32))

    def loss_of(output: Any) -> Tensor:
        return F.cross_entropy(output.logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())

    return Training(case.title, case.model.train(), tokens, loss_of, ("transformer.h.3", "transformer.h.7"))


TRAINING_CASES: Mapping[str, Callable[[], Training]] = {
    "training-step": small_resnet,
    "training-step-gpt2": narrow_gpt2,
}


@dataclass
class Steps:
    title: str
    kept: tuple[str, str]
    rows: Rows

    def ratios(self) -> dict[str, float | None]:
        return {row: ratio(self.rows, row, PLAIN_STEP) for row in self.rows}

    def as_data(self) -> dict[str, Any]:
        return {**asdict(self), "ratios": self.ratios()}

    def shown(self) -> Group:
        table = times_table(self.title, "", ("ms", "x plain", "page faults"))
        for row, samples in self.rows.items():
            if isinstance(samples, Samples):
                add_row(table, row, samples, [self.ratios()[row]])
            else:
                table.add_row(row, short(samples))
        return Group(table, Text(f"kept for the loss: {' and '.join(self.kept)}"), Text())


def measure_training(name: str, repeats: int) -> Steps:
    torch.manual_seed(0)
    training = TRAINING_CASES[name]()
    return Steps(training.title, training.kept, in_turn(steps_of(training), repeats))
