"""Every model of `models` that a test runs as it is, with inputs for it."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tests import models
from tests.programs import containers


@dataclass(frozen=True)
class Example:
    build: Callable[[], nn.Module]
    inputs: Callable[[], tuple[Any, ...]]
    kwargs: Callable[[], dict[str, Any]] = dict


def floats(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator)


def one(*shape: int) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: (floats(*shape),)


def token_ids() -> tuple[Tensor]:
    return (torch.tensor([[1, 2, 3], [4, 5, 6]]),)


def nested_input() -> tuple[dict[str, Any]]:
    return ({"images": [floats(3, 4), (floats(3, 4) * 2, floats(4))], "name": "batch", "none": None},)


PLAIN = """
    Looped Unrolled ReusedBlock StackedBlocks ReusedRelu SharedByTwoParents CallsItself RecursiveFunction
    BranchesOnValues SumsHeads WalksGenerators LoopsOverParameters BareParameter Hooked weight_normed
    spectral_normed CallsForwardDirectly UsesForwardInC TransformInLoop HasScriptedChild CustomBackward
    SwitchesModes CountsInPlace CountsOnTwoLines ReassignsBuffer WritesThroughViews WritesEveryWay CachesKeys
    SeveralOutputs MakesTensors ReadsValues
"""
"""Models whose one input is a batch of three vectors of four."""

EXAMPLES: dict[str, Example] = {
    **{name: Example(getattr(models, name), one(3, 4)) for name in PLAIN.split()},
    "TiedWeights": Example(models.TiedWeights, token_ids),
    "Siamese": Example(models.Siamese, lambda: (floats(3, 4), floats(2, 3, 4)[1])),
    "Checkpointed": Example(functools.partial(models.Checkpointed, use_reentrant=False), one(3, 4)),
    "CheckpointedReentrant": Example(functools.partial(models.Checkpointed, use_reentrant=True), one(3, 4)),
    "normalized_convolution": Example(models.normalized_convolution, one(2, 2, 6, 6)),
    "CrossAttends": Example(models.CrossAttends, lambda: (floats(2, 3, 4), floats(2, 5, 3), floats(2, 5, 5))),
    "encoder": Example(models.encoder, one(2, 3, 4)),
    "sequence_first_encoder": Example(models.sequence_first_encoder, one(3, 2, 4)),
    "StepsThroughTime": Example(models.StepsThroughTime, one(2, 3, 4)),
    "LSTM": Example(lambda: nn.LSTM(4, 3, num_layers=2, dropout=0.2, bidirectional=True), one(5, 2, 4)),
    "GRU": Example(lambda: nn.GRU(4, 3, batch_first=True), one(2, 5, 4)),
    "GivesDict": Example(lambda: containers.GivesContainer(lambda a, b: {"a": a, "b": [b]}), one(3, 4)),
    "GivesOrderedDict": Example(
        lambda: containers.GivesContainer(lambda a, b: OrderedDict(b=b, a=a)), one(3, 4)
    ),
    "GivesNamedTuple": Example(lambda: containers.GivesContainer(containers.Pair), one(3, 4)),
    "GivesTypedNamedTuple": Example(
        lambda: containers.GivesContainer(lambda a, b: containers.Scores(a, [b])), one(3, 4)
    ),
    "GivesDataclass": Example(
        lambda: containers.GivesContainer(lambda a, b: containers.Prediction(a, {"b": b})), one(3, 4)
    ),
    "GivesModelOutput": Example(lambda: containers.GivesContainer(containers.as_model_output), one(3, 4)),
    "GivesSameTwice": Example(lambda: containers.GivesContainer(lambda a, b: (a, a, b)), one(3, 4)),
    "GivesNone": Example(lambda: containers.GivesContainer(lambda a, b: None), one(3, 4)),
    "GivesEndlessItems": Example(
        lambda: containers.GivesContainer(lambda a, b: (b, containers.EndlessItems(a))), one(3, 4)
    ),
    "TakesNestedInput": Example(containers.TakesNestedInput, nested_input, lambda: {"scale": floats(4)}),
    "TakesOneTuple": Example(containers.TakesOneTuple, lambda: ((floats(4), floats(3, 4)),)),
    "GivesItsInput": Example(containers.GivesItsInput, one(3, 4)),
    "GivesParameter": Example(containers.GivesParameter, tuple),
}
