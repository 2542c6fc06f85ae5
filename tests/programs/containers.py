"""Models whose inputs and outputs are containers, and how to take containers apart."""

from __future__ import annotations

import itertools
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Pair = namedtuple("Pair", "low high")


class Scores(NamedTuple):
    logits: Tensor
    hidden: list[Tensor]


@dataclass
class Prediction:
    logits: Tensor
    extra: dict[str, Any]
    loss: Tensor | None = None


class GivesContainer(nn.Module):
    """Gives its two tensors in the container it was built with."""

    def __init__(self, pack: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.pack = pack

    def forward(self, x: Tensor) -> Any:
        hidden = self.linear(x)
        return self.pack(torch.relu(hidden), hidden * 2)


def as_model_output(low: Tensor, high: Tensor) -> Any:
    from transformers.modeling_outputs import BaseModelOutput  # the zoo extra, needed by this one only

    return BaseModelOutput(last_hidden_state=low, hidden_states=(high,))


class EndlessItems:
    """An iterable that no one may walk, holding a tensor."""

    def __init__(self, held: Tensor) -> None:
        self.held = held

    def __iter__(self) -> Iterator[int]:
        return itertools.count()


class TakesNestedInput(nn.Module):
    def forward(self, batch: dict[str, Any], *, scale: Tensor, flip: bool = False) -> Tensor:
        first, (second, third) = batch["images"]
        return (first + second * third) * (-scale if flip else scale)


class TakesOneTuple(nn.Module):
    def forward(self, pair: tuple[Tensor, Tensor]) -> Tensor:
        return pair[0] * pair[1]


class GivesItsInput(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, F.dropout(x, 0.5, self.training)


class GivesParameter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))

    def forward(self) -> Tensor:
        return self.weight


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """What a container holds, by path; anything that is no known container is a leaf."""
    if isinstance(value, Mapping):
        parts = {f"[{key!r}]": part for key, part in value.items()}
    elif is_dataclass(value) and not isinstance(value, type):
        parts = {f".{item.name}": getattr(value, item.name) for item in fields(value)}
    elif isinstance(value, (list, tuple)):
        parts = {f"[{k}]": part for k, part in enumerate(value)}
    else:
        return {path: value}
    return {key: leaf for step, part in parts.items() for key, leaf in leaves(part, path + step).items()}
