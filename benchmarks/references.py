"""What a capture is compared with: torch alone, used in other ways. Other interpreters run some of it too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.profiler import ProfilerActivity, profile

from cases import Case
from timing import Work

PLAIN = "plain forward"
CUT = "plain forward, cut at 1/4"
ASKED = "null mode, nothing kept"
KEEPING = "null mode, outputs kept"
HOOKS = "hooks on every module"
PROFILER = "torch.profiler"
INTERPRETER = "torch.fx.Interpreter"


def is_partial(row: str) -> bool:
    """Whether a row stops early; by its name, which peers give theirs as well."""
    return "1/4" in row


class KeepNothing(TorchFunctionMode):
    """What torch charges for asking a mode about each call."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class KeepOutputs(TorchFunctionMode):
    """The least that any recorder does: it is asked for each call and holds what came out."""

    def __init__(self) -> None:
        super().__init__()
        self.outputs: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        self.outputs.append(output)
        return output


def keep_nothing(case: Case) -> Any:
    with KeepNothing():
        return case.forward()


def keep_outputs(case: Case) -> list[Any]:
    with KeepOutputs() as mode:
        mode.outputs.append(case.forward())
    return mode.outputs


def count_calls(case: Case) -> int:
    """Torch calls in a forward, attribute reads included: each of them costs a mode something."""
    return len(keep_outputs(case)) - 1


def forward_with_hooks(case: Case, hook: Callable[..., None], modules: list[nn.Module]) -> Any:
    """Attach the hook, run, take it off again: as a capture does, all of it is on the clock."""
    handles = [module.register_forward_hook(hook) for module in modules]
    try:
        return case.forward()
    finally:
        for handle in handles:
            handle.remove()


def keep_module_outputs(case: Case) -> list[Any]:
    kept: list[Any] = []
    modules = list(case.model.modules())
    kept.append(forward_with_hooks(case, lambda module, args, output: kept.append(output), modules))
    return kept


class CutError(Exception):
    """Ends a forward, with what the module it ends at gave."""

    def __init__(self, output: Any) -> None:
        super().__init__("the forward was cut")
        self.output = output


def cut(module: nn.Module, args: Any, output: Any) -> None:
    raise CutError(output)


def forward_until(case: Case, address: str) -> Any:
    """The plain forward, ended as soon as a module has its output: as cheap as stopping gets."""
    try:
        forward_with_hooks(case, cut, [case.model.get_submodule(address)])
    except CutError as reached:
        return reached.output
    raise RuntimeError(f"the forward never reached {address!r}")


def profiled(case: Case) -> profile:
    with profile(activities=[ProfilerActivity.CPU]) as result:  # without stacks and shapes
        case.forward()
    return result


def interpreted(case: Case) -> Work | str:
    """`torch.fx.Interpreter` over the symbolically traced model; tracing it is not on the clock."""
    try:
        module = torch.fx.symbolic_trace(case.model)
    except Exception as error:  # noqa: BLE001  # whatever a model does with a proxy where it expects a tensor
        return f"cannot trace: {type(error).__name__}: {error}"
    return lambda: torch.fx.Interpreter(module).run(case.inputs)


def references_of(case: Case) -> dict[str, Work | str]:
    return {
        PLAIN: case.forward,
        CUT: lambda: forward_until(case, case.quarter),
        ASKED: lambda: keep_nothing(case),
        KEEPING: lambda: keep_outputs(case),
        HOOKS: lambda: keep_module_outputs(case),
        INTERPRETER: interpreted(case),
        PROFILER: lambda: profiled(case),
    }
