"""Calls of torch functions as they arrive at a mode, with their arguments and what they returned."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

Cases: TypeAlias = dict[str, tuple[Callable[[], object], int]]
"""What to run and the number that belongs to it, by a readable name."""

BATCH, BATCH_OUT = torch.zeros(2, 3, 3), torch.zeros(2, 3, 3)
GUARDS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")


class Call(NamedTuple):
    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Any

    @property
    def name(self) -> str:
        return self.func.__name__


class Recorder(TorchFunctionMode):
    """Keeps each call as it arrives; functions that torch writes in Python are entered if asked."""

    def __init__(self, enter: bool = False) -> None:
        super().__init__()
        self.enter = enter
        self.calls: list[Call] = []

    def __torch_function__(
        self, func: Any, types_: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        written_in_python = isinstance(func, types.FunctionType) and func.__module__ == "torch.nn.functional"
        if self.enter and written_in_python and func.__closure__ is None:
            inside = func.__globals__ | dict.fromkeys(GUARDS, lambda *_: False)
            entered = types.FunctionType(func.__code__, inside, func.__name__, func.__defaults__)
            entered.__kwdefaults__ = func.__kwdefaults__
            with self:
                return entered(*args, **kwargs)
        out = func(*args, **kwargs)
        self.calls.append(Call(func, args, kwargs, out))
        return out


class Kernels(TorchDispatchMode):
    """Keeps each dispatched operator."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else it loads the compiler

    def __torch_dispatch__(
        self, func: Any, types_: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        self.calls.append(Call(func, args, kwargs or {}, out))
        return out


def calls_of(run: Callable[[], object], enter: bool = False) -> list[Call]:
    with Recorder(enter) as recorder:
        run()
    return recorder.calls


def last_call(run: Callable[[], object], enter: bool = False) -> Call:
    """The call that `run` ends with; making its arguments comes before."""
    return calls_of(run, enter)[-1]


def f32(*shape: int) -> Tensor:
    return torch.zeros(shape)


def counted(cases: Cases) -> Any:
    return pytest.mark.parametrize(("run", "number"), list(cases.values()), ids=list(cases))


def run_python(*arguments: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, check=True, timeout=300, stdout=subprocess.PIPE, text=True, env=environment
    )
    return done.stdout
