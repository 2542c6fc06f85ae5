"""Programs that get their tensors from everywhere, each with the reasons for which its trace is unverified.

A program is made anew for each run and called with two tensors of three numbers. Where no reason stands, the
trace must be verified, and its graph must show every input that the output depends on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Model = Callable[[Tensor, Tensor], Any]


@dataclass
class Program:
    name: str
    make: Callable[[], Model]
    reasons: tuple[str, ...]


Add = Callable[[Callable[[], Model]], Callable[[], Model]]


def adding_to(programs: list[Program]) -> Callable[..., Add]:
    """A decorator that adds what makes a model to a table; it takes the reasons of the trace, in order."""

    def program(*reasons: str) -> Add:
        def add(make: Callable[[], Model]) -> Callable[[], Model]:
            programs.append(Program(make.__name__, make, reasons))
            return make

        return add

    return program


def floats(start: float) -> Tensor:
    return torch.tensor([start, start + 1, start + 2], dtype=torch.float32)


def elsewhere(work: Callable[[], Any]) -> Any:
    """What `work` returns, run on a thread of its own."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


@torch.jit.script
def scripted(x: Tensor) -> Tensor:
    return torch.sin(x) + 1


@torch.jit.script
def scripted_copy(kept: Tensor, x: Tensor) -> Tensor:
    return kept.copy_(x)


@torch.jit.script
def scripted_write(x: Tensor) -> Tensor:
    return x.mul_(3)
