"""What the doctor asks of Python, torch and the process, apart from any model."""

from __future__ import annotations

import os
import platform
import sys
import threading
from collections.abc import Iterator
from typing import Final, cast

import numpy as np
import torch
from torch.nn.modules import module as nn_module
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from torchlens._capture.function_mode import FunctionMode
from torchlens._capture.refusals import refusals
from torchlens.report.amounts import listed, quantity
from torchlens.report.doctor_subject import Sign, Subject

TESTED_PYTHONS: Final = ((3, 10), (3, 13))
"""The first and the last."""
TESTED_TORCH: Final = ("2.13",)
_GLOBAL_HOOKS: Final = ("_global_forward_pre_hooks", "_global_forward_hooks")
_VALIDATE: Final = "tl.validate(model, x) checks what holds for this model here"


def python_version(_: Subject) -> Iterator[Sign]:
    """Python's version, and whether code has columns."""
    version = platform.python_version()
    first, last = TESTED_PYTHONS
    if not first <= sys.version_info[:2] <= last:
        yield Sign("not tested", f"{version}; tested are {_dotted(first)} to {_dotted(last)}", _VALIDATE)
    elif _has_no_columns():
        yield Sign(
            "limited",
            f"{version} without positions: call sites have no columns",
            "leave -X no_debug_ranges out",
        )
    else:
        yield Sign("ok", version)


def torch_version(_: Subject) -> Iterator[Sign]:
    """The torch release."""
    version = torch.__version__
    if ".".join(version.split(".")[:2]) in TESTED_TORCH:
        yield Sign("ok", version)
    else:
        yield Sign("not tested", f"{version}; the tests run on torch {listed(TESTED_TORCH)}", _VALIDATE)


def numpy_version(_: Subject) -> Iterator[Sign]:
    """Whether torch and numpy share memory."""
    try:
        with torch._C._DisableTorchDispatch():  # a mode that is on is not asked
            torch.ones(1).numpy()
    except RuntimeError as error:
        yield Sign(
            "limited",
            f"{np.__version__}, which this torch cannot use: {error}",
            "install a numpy that it was built for",
        )
    else:
        yield Sign("ok", np.__version__)


def devices(_: Subject) -> Iterator[Sign]:
    """What a model could run on here."""
    found = ["cpu"]
    if torch.cuda.is_available():
        found.append(quantity(torch.cuda.device_count(), "CUDA device"))
    if torch.backends.mps.is_available():
        found.append("mps")
    yield Sign("ok", ", ".join(found))


def compiler(_: Subject) -> Iterator[Sign]:
    """Whether compiled code can be made to run eagerly."""
    if not hasattr(torch.compiler, "set_stance"):
        yield Sign(
            "limited",
            "this torch cannot run compiled code eagerly (2.6 can): compiled regions are skipped",
            "trace the model before it is compiled",
        )
    elif "torch._dynamo" in sys.modules:
        yield Sign("ok", "dynamo is loaded; compiled code of the whole process runs eagerly during a capture")
    else:
        yield Sign("ok", "dynamo is not loaded, so nothing is compiled")


def open_captures(_: Subject) -> Iterator[Sign]:
    """Whether this thread is in a capture already."""
    if any(isinstance(mode, FunctionMode) for mode in _function_modes()):
        yield Sign("refused", "a capture is open on this thread", "end it before the next one starts")


def function_modes(_: Subject) -> Iterator[Sign]:
    """Function modes of others that are on in this thread."""
    others = [type(mode).__name__ for mode in _function_modes() if not isinstance(mode, FunctionMode)]
    others = [name for name in others if name != "DeviceContext"]  # a default device
    if others:
        yield Sign(
            "limited",
            f"{listed(others)} on: torch's Python functions are one op each, not entered",
            "capture outside of it",
        )


def dispatch_modes(_: Subject) -> Iterator[Sign]:
    """Dispatch modes that are on in this thread."""
    names = [type(mode).__name__ for mode in cast("list[object]", _get_current_dispatch_mode_stack())]
    if names:
        yield Sign(
            "not tested",
            f"{listed(names)} on: what it changes is recorded as it changes it",
            "capture outside of it",
        )


def profilers(_: Subject) -> Iterator[Sign]:
    """Python profilers: a transform is followed by one."""
    found: object = sys.getprofile()
    if found is not None:
        name = type(found).__name__
        yield Sign(
            "limited",
            f"a profiler ({name}) is on: torch.func transforms may get no op",
            "profile without the capture",
        )


def other_threads(_: Subject) -> Iterator[Sign]:
    """Threads that could do a model's work, the youngest first."""
    names = [t.name for t in reversed(threading.enumerate()) if t is not threading.current_thread()]
    if names:
        yield Sign(
            "limited",
            f"{quantity(len(names), 'other thread')} alive ({listed(names)}): what they compute is not seen",
            "keep the model's tensor work on the thread that captures",
        )


def global_hooks(_: Subject) -> Iterator[Sign]:
    """Hooks on every module."""
    tables = cast("list[dict[int, object]]", [vars(nn_module)[name] for name in _GLOBAL_HOOKS])
    count = sum(map(len, tables))
    if count:
        yield Sign(
            "limited", f"{quantity(count, 'hook')} on every module: their ops belong to the caller's scope"
        )


def inference_mode(_: Subject) -> Iterator[Sign]:
    """Inference mode, whose tensors have no version counters."""
    if torch.is_inference_mode_enabled():
        yield Sign(
            "limited",
            "inference mode is on: a value changed later can't be told from one that was not",
            "torch.no_grad()",
        )


def data_loader_worker(_: Subject) -> Iterator[Sign]:
    """Whether this process may capture at all."""
    for refusal in refusals():
        yield Sign("refused", f"{refusal.found} {refusal.reason}", refusal.instead)


def _function_modes() -> list[object]:
    return cast("list[object]", _get_current_function_mode_stack())


def _has_no_columns() -> bool:
    return bool(sys._xoptions.get("no_debug_ranges") or os.environ.get("PYTHONNODEBUGRANGES"))


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
