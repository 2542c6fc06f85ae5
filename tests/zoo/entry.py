"""One model of the zoo: where it is from, how it is built, what it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

FAMILIES = (
    "convolutional",
    "vision transformer",
    "mixer",
    "recurrent",
    "encoder",
    "decoder",
    "encoder-decoder",
    "mixture of experts",
    "state space",
    "diffusion",
    "detection",
    "segmentation",
    "dense prediction",
    "speech",
    "video",
    "graph",
    "multimodal",
    "time series",
    "quantized",
)


@dataclass(frozen=True)
class Inputs:
    """What a model is called with."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Entry:
    """A model with random weights; both callables draw from torch's seed."""

    name: str
    package: str
    family: str
    build: Callable[[], nn.Module]
    inputs: Callable[[], Inputs]
    unseen: str | None = None
    """The reason for which a trace of the model is rightly unverified."""
    notes: str = ""
    setting: Callable[[], AbstractContextManager[object]] = nullcontext
    """What the model runs under."""

    def __post_init__(self) -> None:
        assert self.family in FAMILIES, self.family


def under(entry: Entry, words: str, setting: Callable[[], AbstractContextManager[object]]) -> Entry:
    """The same model under another setting of torch."""
    return replace(entry, name=f"{entry.name}, {words}", setting=setting)


def training(entry: Entry) -> Entry:
    """The same model in training mode, where it draws random numbers and updates its statistics."""
    return replace(entry, name=f"{entry.name}, in training", build=lambda: entry.build().train())
