"""The witness: every operator that torch dispatches during a capture is counted and accounted for.

A function mode sees the calls that code makes; a dispatch mode sees the operators that these calls come down
to, and those of code that makes no call a mode is told of. The innermost Python frame that is not torch's own
says which it is: one of our handlers, or the user's code.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from types import CodeType, FrameType
from typing import Any, Final, cast

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from torchlens._capture.boundaries import TRANSFORM_FILES, Transforms
from torchlens._capture.doubts import Doubts
from torchlens._capture.function_mode import FunctionMode
from torchlens._capture.host import is_torchs_memory
from torchlens._capture.kinds import INERT
from torchlens._capture.modules import module_code
from torchlens._capture.recording import Recording
from torchlens._capture.unseen_work import UnseenWork
from torchlens._capture.writes import overloads_of
from torchlens._records import Census

_Key: Final = torch._C.DispatchKey
_Exclude: Final = torch._C._SetExcludeDispatchKeyGuard
_AUTOCAST: Final = {
    "cpu": (_Key.AutocastCPU, "AutocastCPU"),
    "cuda": (_Key.AutocastCUDA, "AutocastCUDA"),
    "xpu": (_Key.AutocastXPU, "AutocastXPU"),
}
_HANDLERS: Final[dict[CodeType, Callable[[Mapping[str, Any]], str]]] = {
    FunctionMode.__torch_function__.__code__: lambda v: "question" if v["kind"] is INERT else "recorded",
    FunctionMode._attribute.__code__: lambda v: "recorded",
    FunctionMode._set_data.__code__: lambda v: "recorded",
    FunctionMode._inside.__code__: lambda v: "boundary" if v["self"]._transforms.running else "backward",
    FunctionMode._start_transform.__code__: lambda v: "boundary",
    FunctionMode._special.__code__: lambda v: "recorded",
    FunctionMode._backward.__code__: lambda v: "backward",
    Recording.call.__code__: lambda v: "read" if v["special"].read else "recorded",
}
"""What an operator is that runs while one of these makes the user's call, from its variables."""
_CONSTANT: Final = torch.ops.aten.lift_fresh.default
"""Gives a tensor made of Python's numbers: its argument was made for it, and is nowhere else."""
_backward_running = torch._C._current_graph_task_id


class Witness(TorchDispatchMode):
    """Counts the operators of one capture on its own thread."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would import dynamo at the first operator

    def __init__(self, recording: Recording, transforms: Transforms, unseen_work: UnseenWork) -> None:
        super().__init__()
        self._contexts = recording.contexts
        self._transforms = transforms
        self._unseen_work = unseen_work
        self._counts: Counter[str] = Counter()
        self._script_code = module_code()
        self._autocast_ops: dict[tuple[object, str], bool] = {}

    def open(self) -> None:
        """Start counting. The mode's own `with` would set flags for all threads."""
        torch._C._push_on_torch_dispatch_stack(self)

    def close(self) -> None:
        """Stop counting, also from under modes that the user's code left on."""
        above: list[Any] = []
        while (top := torch._C._pop_torch_dispatch_stack(None)) is not self:
            above.append(top)
        for other in reversed(above):
            torch._C._push_on_torch_dispatch_stack(other)

    def census(self, doubts: Doubts) -> Census:
        """What was counted. Operators that nothing accounts for are doubts."""
        self._counts.update(self._unseen_work.counts())
        counts = {name: count for name, count in self._counts.items() if count}
        return Census(counts, self._unseen_work.leftovers(doubts))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        kind, frame = self._account_for(sys._getframe(1))
        with torch._C.DisableTorchFunction(), ExitStack() as as_without_us:
            for guard in self._guards(func, frame):
                as_without_us.enter_context(guard)
            out = func(*args, **kwargs)
        with torch._C.DisableTorchFunction():
            is_constant = func is _CONSTANT and is_torchs_memory(out)
            if kind is None and _gives_views(func) and not is_constant:
                kind = "alias"
            if kind is None:
                assert frame is not None
                self._unseen_work.add(str(func), frame, [] if is_constant else [args, kwargs], out)
            else:
                self._counts[kind] += 1
        return out

    def _account_for(self, frame: FrameType | None) -> tuple[str | None, FrameType | None]:
        """What accounts for an operator, None where nothing does, and the frame that says so."""
        if _backward_running() != -1:
            return "backward", None
        in_call = self._is_in_call()
        while frame is not None:
            code = frame.f_code
            if code in _HANDLERS:
                return _HANDLERS[code](frame.f_locals), frame
            if in_call:  # whoever runs is part of what a handler called
                frame = frame.f_back
                continue
            if code.co_filename in TRANSFORM_FILES:
                return "boundary", frame
            if code is self._script_code and isinstance(frame.f_locals["self"], torch.jit.ScriptModule):
                return "boundary", frame
            if _is_of(frame, "torchlens"):
                return "own", frame
            if not _is_of(frame, "torch"):
                return ("boundary" if self._transforms.running else None), frame
            frame = frame.f_back
        return "own", None

    def _is_in_call(self) -> bool:
        """Whether the function mode is making a call: torch takes it off for that long."""
        stack = map(torch._C._get_function_stack_at, range(torch._C._len_torch_function_stack()))
        return not any(isinstance(mode, FunctionMode) for mode in stack)

    def _guards(self, func: object, frame: FrameType | None) -> Iterator[Any]:
        """What makes the operator run as torch runs it without a mode.

        In a mode's handler torch leaves out everything that ranks above modes. Without one, a kernel that is
        made of other operators calls them with conjugation, and with autocast unless autocast made the call.
        """
        for key in (_Key.Conjugate, _Key.Negative, _Key.ZeroTensor):
            yield _Exclude(key, False)
        if frame is not None and "context" in frame.f_locals:
            called, context = frame.f_locals["func"], cast("int", frame.f_locals["context"])
            for device in self._contexts[context].autocast:
                if device in _AUTOCAST:
                    key, name = _AUTOCAST[device]
                    if not (self._is_autocast(func, name) or self._is_autocast(called, name)):
                        yield _Exclude(key, False)

    def _is_autocast(self, func: object, key: str) -> bool:
        """Whether autocast casts for the function: it then leaves what happens inside alone."""
        found = self._autocast_ops.get((func, key))
        if found is None:
            name = getattr(func, "__name__", "").strip("_")
            overloads = overloads_of(func) or overloads_of(getattr(torch.ops.aten, name, None))
            # some overloads are TorchScript's alone: the dispatcher raises for them
            names = [overload.name() for overload in overloads]
            known = filter(torch._C._dispatch_has_kernel, names)
            found = any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for name in known)
            self._autocast_ops[func, key] = found
        return found


def _is_of(frame: FrameType, package: str) -> bool:
    name = str(frame.f_globals.get("__name__"))
    return name == package or name.startswith(f"{package}.")


def _gives_views(func: object) -> bool:
    """Whether the operator only gives other views of its argument."""
    if not isinstance(func, OpOverload):
        return False
    returned = [value.alias_info for value in func._schema.returns]
    return bool(returned) and all(alias is not None and not alias.is_write for alias in returned)
