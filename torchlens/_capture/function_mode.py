"""One torch call in, one row out: the mode under which the model runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import perf_counter_ns
from types import FrameType
from typing import Any, Final

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, handle_torch_function
from torch.utils._device import DeviceContext

from torchlens._capture.boundaries import Transforms
from torchlens._capture.call_site import CallSites
from torchlens._capture.kinds import INERT, PLAIN, Special, classify
from torchlens._capture.modules import ModuleCalls
from torchlens._values.plain import is_scalar, plain, tensors_in
from torchlens._capture.python_calls import Entry, PythonCalls
from torchlens._capture.random_state import generator_states
from torchlens._capture.tensors import Tensors
from torchlens._capture.writes import Target, is_gathered, out_targets, region
from torchlens._keys.spelling import side_of_tensor
from torchlens._records import Context, Side
from torchlens._values.ledger import Write

_MethodWrapper: Final = type(Tensor.shape.__get__)
_TENSOR_ATTRIBUTES: Final = frozenset({"T", "mT", "H", "mH", "real", "imag", "data", "grad"})
_HANDLE_CODE: Final = handle_torch_function.__code__
_NO_KWARGS: Final[dict[str, Any]] = {}

_push = torch._C._push_on_torch_function_stack
_pop = torch._C._pop_torch_function_stack
_backward_running = torch._C._current_graph_task_id
_grad_enabled = torch.is_grad_enabled
_inference_mode = torch.is_inference_mode_enabled
_any_autocast = torch._C._is_any_autocast_enabled


class FunctionMode(TorchFunctionMode):
    """Runs each torch call and appends its row.

    The handler is the hot path: a plain call costs a kind lookup, the walk over its frames, a look at
    each argument and one append. Everything rarer leaves through `_special`.
    """

    def __init__(
        self,
        rows: list[tuple[Any, ...]],
        sites: CallSites,
        calls: ModuleCalls,
        tensors: Tensors,
        transforms: Transforms,
    ) -> None:
        super().__init__()
        self.generators: dict[int, list[tuple[str, Tensor]]] = {}
        self.reads: list[tuple[int, str, Tensor]] = []
        self.contexts: list[Context] = []
        self.backward_calls = 0
        self._rows = rows
        self._sites = sites
        self._calls = calls
        self._tensors = tensors
        self._transforms = transforms
        self._known = tensors.known
        self._kinds: dict[Any, str | Special] = {}
        self._context_index: dict[tuple[Any, ...], int] = {}
        self._python_calls = PythonCalls()
        self._entered: list[Entry | None] = [None]
        self._context(factory=False)  # what rows that are no calls stand under
        sites.handler_code = type(self)._enter.__code__

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if type(func) is _MethodWrapper:
            return self._attribute(func, args, sys._getframe(1))
        kind = self._kinds.get(func)
        if kind is INERT:
            return func(*args, **kwargs) if kwargs else func(*args)
        calls = self._calls
        if calls.quiet:
            if self._transforms.running:
                self._transforms.note(args, self._known)
            return func(*args, **kwargs) if kwargs else func(*args)
        frame = sys._getframe(1)
        if kind is not PLAIN or kwargs:
            return self._special(func, types, args, kwargs or _NO_KWARGS, kind, frame)
        if _backward_running() != -1:
            return func(*args)
        if calls.watched is not None:
            self._tensors.buffers_may_have_changed(calls.watched)
        site, call = self._sites.locate(frame)
        if self._sites.in_transform and site in self._sites.in_transform:
            return self._in_transform(func, args, _NO_KWARGS, frame)
        known = self._known
        for value in args:
            if id(value) not in known:
                recorded = self._tensors.plain_args(args, frame)
                break
        else:
            recorded = args
        start = perf_counter_ns()
        out = func(*args)
        duration = perf_counter_ns() - start
        # interned inline: a call to do it would cost as much as the lookup
        key = (_grad_enabled(), _inference_mode(), _any_autocast())
        context = self._context_index.get(key)
        if context is None:
            context = self._add_context(key)
        if type(out) is Tensor:
            known.add(id(out))
            version = None if key[1] else _version(out)
            self._rows.append(("call", func, site, call, context, recorded, None, out, version, duration, None))
        else:
            self._append("call", func, site, call, context, recorded, None, out, duration, None)
        return out

    def _special(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        kind: str | Special | None,
        frame: FrameType,
    ) -> Any:
        """A call that needs more than to be made and recorded."""
        if kind is None:
            kind = self._kinds[func] = classify(func)
            if kind is INERT:
                return func(*args, **kwargs)
        if _backward_running() != -1:
            return func(*args, **kwargs)
        special = kind if isinstance(kind, Special) else _ORDINARY
        caller = frame
        if frame.f_code is _HANDLE_CODE:
            guard = frame.f_back
            assert guard is not None and guard.f_back is not None
            caller = guard.f_back
        if self._calls.watched is not None:
            self._tensors.buffers_may_have_changed(self._calls.watched)
        site, call = self._sites.locate(caller)
        if site in self._sites.in_transform:
            return self._in_transform(func, args, kwargs, caller)
        if special.quiet:
            return self._backward(func, args, kwargs)
        if special.python:
            clone = self._python_calls.find(func, types, args, kwargs, frame, self._entered[-1])
            if clone is not None:
                return self._enter(clone, (site, call, func), args, kwargs)
        return self._record(func, special, (site, call), args, kwargs, caller)

    def _record(
        self,
        func: Any,
        special: Special,
        where: tuple[int, int],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        caller: FrameType,
    ) -> Any:
        """Make the call and append its row, with what its kind asks for."""
        tensors = self._tensors
        recorded = tensors.plain_args(args, caller)
        recorded_kwargs = tensors.plain_kwargs(kwargs, caller) if kwargs else None
        side: Side = None
        if special.sided and len(args) == 2 and not isinstance(args[1], Tensor):
            side = side_of_tensor(caller, _is_tensor)
        states = generator_states(kwargs.get("generator")) if special.random else None
        targets = special.writes(args, kwargs) if special.writes else []
        if kwargs.get("out") is not None:
            targets = out_targets(kwargs["out"])
        writes = self._before_writes(targets)
        context = self._context(special.factory)
        start = perf_counter_ns()
        try:
            out = func(*args, **kwargs)
        except BaseException:
            for target, write in writes:
                tensors.ledger.failed_write(write, target.tensor)
            raise
        duration = perf_counter_ns() - start
        if special.read and args and isinstance(args[0], Tensor):
            self.reads.append((len(self._rows), special.name, args[0]))
        row = len(self._rows)
        produced = out
        if out is None and targets:
            produced = targets[0].tensor if len(targets) == 1 else tuple(t.tensor for t in targets)
        kind = "boundary" if special.boundary else "call"
        if not self._append(kind, func, *where, context, recorded, recorded_kwargs, produced, duration, side):
            return out
        if states is not None:
            self.generators[row] = states
        if targets:
            tensors.after_writes(targets, writes, row, where)
        return out

    def _append(
        self,
        kind: str,
        func: Any,
        site: int,
        call: int,
        context: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        out: Any,
        duration: int,
        side: Side,
    ) -> bool:
        """Append the row of a call whose result may be anything; False when it holds no tensor."""
        if isinstance(out, Tensor):
            self._known.add(id(out))
            version: Any = _version(out)
        else:
            found = tensors_in(out)
            if not found:
                return False
            out = tuple(found)
            self._known.update(map(id, found))
            version = tuple(map(_version, found))
        self._rows.append((kind, func, site, call, context, args, kwargs, out, version, duration, side))
        return True

    def _before_writes(self, targets: list[Target]) -> list[tuple[Target, Write]]:
        writes: list[tuple[Target, Write]] = []
        ledger = self._tensors.ledger
        if targets:
            self._tensors.before_first_write()
        for target in targets:
            if target.metadata:
                ledger.before_metadata(target.tensor)
                continue
            index = target.index if is_gathered(target) else None
            writes.append((target, ledger.before_write(target.tensor, region(target), index)))
        return writes

    def _enter(
        self,
        clone: Callable[..., Any],
        entry: tuple[int, int, Callable[..., Any]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Run a function that torch wrote in Python with the mode on. Chains inside end at this frame."""
        entries = self._sites.entries
        entries.append(entry)
        self._entered.append((entry[2], args, kwargs))
        _push(self)
        try:
            return clone(*args, **kwargs)
        finally:
            _pop()
            self._entered.pop()
            entries.pop()

    def _backward(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.backward_calls += 1
        self._calls.quiet = True
        try:
            return func(*args, **kwargs)
        finally:
            self._calls.quiet = False

    def _attribute(self, wrapper: Any, args: tuple[Any, ...], frame: FrameType) -> Any:
        """A tensor's attribute read or set: an op where it gives a tensor, or sets `data`."""
        if wrapper.__name__ == "__get__":
            out = wrapper(*args)
            if not isinstance(out, Tensor) or self._is_quiet():
                return out
            site, call = self._sites.locate(frame)
            recorded = self._tensors.plain_args(args[:1], frame)
            self._append("call", wrapper, site, call, self._context(False), recorded, None, out, 0, None)
            return out
        if wrapper.__self__.__name__ != "data" or self._is_quiet():
            return wrapper(*args)
        tensor = args[0]
        site, call = self._sites.locate(frame)
        recorded = self._tensors.plain_args(args, frame)
        self._tensors.ledger.before_metadata(tensor)
        wrapper(*args)
        self._tensors.ledger.inplace.add((len(self._rows), 0))
        self._append("call", wrapper, site, call, self._context(False), recorded, None, tensor, 0, None)
        self._tensors.replaced(tensor, (site, call))
        return None

    def _is_quiet(self) -> bool:
        return self._calls.quiet or _backward_running() != -1

    def close(self) -> None:
        """Drop the entered functions."""
        self._python_calls.close()
        self._kinds.clear()

    def begin_transform(self, frame: FrameType) -> None:
        """Take everything until the outermost transform around `frame` returns as one op."""
        self._calls.quiet = True
        self._transforms.begin(frame, self._sites.is_boundary)

    def _in_transform(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> Any:
        """The first torch call inside a transform: everything until the transform returns is one op."""
        self.begin_transform(frame)
        self._transforms.note(args, self._known)
        return func(*args, **kwargs)

    def _context(self, factory: bool) -> int:
        key: tuple[Any, ...] = (_grad_enabled(), _inference_mode(), _any_autocast())
        if factory:  # elsewhere the defaults do not matter, and asking for them costs more than the rest
            key = (*key, torch.get_default_dtype(), _default_device())
        context = self._context_index.get(key)
        return self._add_context(key) if context is None else context

    def _add_context(self, key: tuple[Any, ...]) -> int:
        index = self._context_index[key] = len(self.contexts)
        dtype, device = key[3:] or (torch.get_default_dtype(), _default_device())
        autocast = {
            kind: str(torch.get_autocast_dtype(kind)).removeprefix("torch.")
            for kind in torch._C._autocast_supported_devices()
            if key[2] and torch.is_autocast_enabled(kind)
        }
        self.contexts.append(Context(key[0], key[1], autocast, str(dtype).removeprefix("torch."), str(device)))
        return index


_ORDINARY: Final = Special("")


def _default_device() -> str:
    """Where factories put tensors. Asked only when a mode that could change it is on: asking is slow."""
    return str(torch.get_default_device()) if torch._C._len_torch_function_stack() else "cpu"


def _is_tensor(value: object) -> bool:
    return isinstance(value, Tensor)


def _version(tensor: Tensor) -> int | None:
    """Torch's count of in-place changes; inference tensors have none."""
    try:
        return tensor._version
    except RuntimeError:
        return None
