"""One torch call in, one row out: the mode under which the model runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import perf_counter_ns
from types import FrameType
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.parameter import Parameter, is_lazy
from torch.overrides import TorchFunctionMode, handle_torch_function

from torchlens._capture.boundaries import Transforms
from torchlens._capture.call_site import CallSites
from torchlens._capture.choosing import Chooser
from torchlens._capture.control_flow import as_without_capture
from torchlens._capture.halting import AfterHalt, Halt
from torchlens._capture.kinds import ATTRIBUTE, INERT, ORDINARY, PLAIN, SIDED, Special, classify
from torchlens._capture.modules import ModuleCalls
from torchlens._capture.python_calls import Entry, PythonCalls
from torchlens._capture.recording import Recording
from torchlens._capture.tensors import Tensors
from torchlens._keys.sides import is_fixed_side, side_of_tensor
from torchlens._records import Side
from torchlens._values.plain import SCALARS

_HANDLE_CODE: Final = handle_torch_function.__code__
_TENSORS: Final = frozenset((Tensor, Parameter))
_NO_KWARGS: Final[dict[str, Any]] = {}

_push = torch._C._push_on_torch_function_stack
_pop = torch._C._pop_torch_function_stack
_num_modes = torch._C._len_torch_function_stack
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
        recording: Recording,
        sites: CallSites,
        calls: ModuleCalls,
        tensors: Tensors,
        transforms: Transforms,
        chooser: Chooser | None,
    ) -> None:
        super().__init__()
        self.halted = False
        self._chooser = chooser
        self.backward_calls = 0
        self._recording = recording
        self._rows = recording.rows
        self._context_index = recording.context_index
        self._sites = sites
        self._in_transform = sites.in_transform
        self._calls = calls
        self._tensors = tensors
        self._transforms = transforms
        self._known = tensors.holding.known
        self._whole = tensors.holding.whole
        self._kinds: dict[Any, str | Special] = {}
        self._attributes: dict[Any, Any] = {}
        self._sides: dict[int, Side] = {}
        """By site, where the tensor stands in its operator, if the code alone tells."""
        self._python_calls = PythonCalls()
        self._entered: list[Entry | None] = [None]
        sites.handler_code = type(self)._enter.__code__

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kind = self._kinds.get(func)
        if kind is None:
            kind = self._kinds[func] = classify(func)
        if kind is INERT:
            return func(*args, **kwargs) if kwargs else func(*args)
        if kind is ATTRIBUTE:
            return self._attribute(func, args, sys._getframe(1))
        calls = self._calls
        if calls.quiet:
            return self._inside(func, types, args, kwargs or _NO_KWARGS, sys._getframe(1))
        frame = sys._getframe(1)
        if (kind is not PLAIN and kind is not SIDED) or (kwargs and "out" in kwargs):
            return self._special(func, types, args, kwargs or _NO_KWARGS, kind, frame)
        if _backward_running() != -1:
            return func(*args, **kwargs) if kwargs else func(*args)
        if calls.alert:
            calls.attend(frame)
        site, call = self._sites.locate(frame)
        if self._in_transform and site in self._in_transform:
            return self._start_transform(func, args, kwargs or _NO_KWARGS, frame)
        known = self._known
        recorded, recorded_kwargs = args, kwargs
        for value in args:
            if id(value) not in known and type(value) not in SCALARS:
                recorded = self._tensors.plain_args(args, frame)
                break
        side: Side = None
        if kind is SIDED and len(args) == 2 and type(args[1]) not in _TENSORS:
            # remembered where it follows from the code alone: asking takes 1 us
            known_side = site in self._sides and type(args[1]) in SCALARS
            side = self._sides[site] if known_side else self._side(args[1], frame, site)
        # interned inline: a call to do it would cost as much as the lookup
        key = (_grad_enabled(), _inference_mode(), _any_autocast())
        context = self._context_index.get(key)
        if context is None:
            context = self._recording.add_context(key)
        if kwargs:
            recorded_kwargs = self._tensors.plain_kwargs(kwargs, frame)
            start = perf_counter_ns()
            out = func(*args, **kwargs)
        else:
            start = perf_counter_ns()
            out = func(*args)
        duration = perf_counter_ns() - start
        if type(out) is self._whole and not key[1]:
            known.add(id(out))
            try:
                version = out._version
            except RuntimeError:  # a view of an inference tensor counts nothing
                version = None
            self._rows.append(
                ("call", func, site, call, context, recorded, recorded_kwargs, out, version, duration, side)
            )
        else:
            head = ("call", func, site, call, context, recorded, recorded_kwargs)
            self._recording.append(head, out, duration, side)
            self.halt_if_due()
        return out

    def halt_if_due(self, *, later: bool = False) -> None:
        """End the forward if all the sites are reached after which it may; or `later`, at the next call.

        This raises, and so does each later torch call.
        """
        if self._chooser is not None and self._chooser.due:
            self._shut()
            if not later:
                raise Halt

    def _shut(self) -> None:
        self.halted = True
        self._kinds = AfterHalt()
        self._calls.quiet = True

    @property
    def kept_whole(self) -> set[str]:
        """Torch functions written in Python that were not entered, for the sake of others who look on."""
        return self._python_calls.kept_whole

    def close(self) -> None:
        """Drop the entered functions."""
        self._python_calls.close()
        self._kinds.clear()

    def begin_transform(self, frame: FrameType) -> None:
        """Take everything until the outermost transform around `frame` returns as one op."""
        self._calls.quiet = True
        missed = self._transforms.unfollowed
        self._transforms.begin(frame, self._sites.is_boundary)
        if self._transforms.unfollowed > missed:
            self._tensors.doubts.add("transform_not_followed", len(self._rows))

    def _special(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        kind: str | Special,
        frame: FrameType,
    ) -> Any:
        """A call that needs more than to be made and recorded."""
        special = kind if isinstance(kind, Special) else ORDINARY
        if _backward_running() != -1:
            return self._runner(func, special, frame)(*args, **kwargs)
        if special.patched:
            func = self._python_calls.unpatched(func, frame)
            special = self._special_of(func)
        caller = frame
        if frame.f_code is _HANDLE_CODE:
            guard = frame.f_back
            assert guard is not None and guard.f_back is not None
            caller = guard.f_back
        if self._calls.alert:
            self._calls.attend(caller)
        site, call = self._sites.locate(caller)
        if site in self._in_transform:
            return self._start_transform(func, args, kwargs, caller)
        if special.quiet:
            return self._backward(func, special, (site, call), args, kwargs, caller)
        if special.python:
            clone = self._python_calls.find(func, types, args, kwargs, frame, self._entered[-1])
            if clone is not None:
                return self._enter(clone, (site, call, func), args, kwargs)
        out = self._recording.call(func, special, (site, call), args, kwargs, caller)
        self.halt_if_due()
        return out

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
        # the mode of a default device has handed the function on by now, and would not see its inside
        below = _pop() if _num_modes() else None
        try:
            _push(self)
            return clone(*args, **kwargs)
        finally:
            _pop()
            if below is not None:
                _push(below)
            self._entered.pop()
            entries.pop()

    def _special_of(self, func: Any) -> Special:
        kind = classify(func)
        return kind if isinstance(kind, Special) else ORDINARY

    def _side(self, other: Any, frame: FrameType, site: int) -> Side:
        if isinstance(other, Tensor):
            return None
        side = side_of_tensor(frame, _is_tensor)
        if site and type(other) in SCALARS and is_fixed_side(frame):
            self._sides[site] = side
        return side

    def _inside(
        self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType
    ) -> Any:
        """A call that is not recorded: in a transform, which is one op, or during backward."""
        special = self._special_of(func)
        run = self._runner(func, special, frame)
        if not self._transforms.running:
            return run(*args, **kwargs)
        if self.transform_is_over(frame):
            return self._special(func, types, args, kwargs, classify(func), frame)
        return self._transforms.call(run, special, args, kwargs, frame)

    def _runner(self, func: Any, special: Special, frame: FrameType) -> Any:
        """What to call for `func`, where the call is not recorded."""
        return as_without_capture(func, frame, self._calls.hooks_away) if special.control_flow else func

    def transform_is_over(self, frame: FrameType) -> bool:
        """Whether a transform that could not be followed has ended; if so, recording goes on."""
        if not self._transforms.is_over(frame):
            return False
        self._transforms.abandon()
        self._calls.quiet = False
        return True

    def _start_transform(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType
    ) -> Any:
        """The first torch call inside a transform."""
        self.begin_transform(frame)
        special = self._special_of(func)
        return self._transforms.call(self._runner(func, special, frame), special, args, kwargs, frame)

    def _backward(
        self,
        func: Any,
        special: Special,
        where: tuple[int, int],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        caller: FrameType,
    ) -> Any:
        """Backward, of which nothing inside is recorded; the gradients that it gives are one op's."""
        self.backward_calls += 1
        self._calls.quiet = True
        try:
            if special.boundary:
                return self._recording.call(func, special, where, args, kwargs, caller)
            return func(*args, **kwargs)
        finally:
            self._calls.quiet = False

    def _attribute(self, wrapper: Any, args: tuple[Any, ...], frame: FrameType) -> Any:
        """A tensor's attribute read or set: an op where it gives a tensor, or sets `data`."""
        if wrapper.__name__ == "__get__":
            out = wrapper(*args)
            if isinstance(out, Tensor) and not is_lazy(out) and not is_lazy(args[0]):
                self._attribute_gave(wrapper, args, out, frame)
            return out
        if wrapper.__self__.__name__ == "requires_grad" and not self._is_quiet():
            change = self._tensors.ledger.before_metadata(args[0])
            try:
                return wrapper(*args)
            finally:
                self._tensors.ledger.after_metadata(change, args[0])
        # what fills the parameters of a lazy module has no value before
        if wrapper.__self__.__name__ == "data" and not is_lazy(args[0]) and not self._is_quiet():
            return self._set_data(wrapper, args, frame)
        return wrapper(*args)

    def _attribute_gave(self, wrapper: Any, args: tuple[Any, ...], out: Tensor, frame: FrameType) -> None:
        if self._is_quiet():
            if self._transforms.running:
                self._transforms.note(args[:1], out, frame)
            return
        if self._calls.alert:
            self._calls.attend(frame)
        site, call = self._sites.locate(frame)
        recorded = self._tensors.plain_args(args[:1], frame)
        # torch makes a wrapper for each read
        wrapper = self._attributes.setdefault(wrapper.__self__, wrapper)
        context = self._recording.context(factory=False)
        self._recording.append(("call", wrapper, site, call, context, recorded, None), out, 0, None)
        self.halt_if_due()

    def _set_data(self, wrapper: Any, args: tuple[Any, ...], frame: FrameType) -> None:
        where = self._sites.locate(frame)
        recorded = self._tensors.plain_args(args, frame)
        self._tensors.holding.note_writes(args[:1])
        ledger = self._tensors.ledger
        change = ledger.before_metadata(args[0])
        try:
            wrapper(*args)
        finally:
            ledger.after_metadata(change, args[0])
        ledger.inplace.add((len(self._rows), 0))
        context = self._recording.context(factory=False)
        self._recording.append(("call", wrapper, *where, context, recorded, None), args[0], 0, None)
        self._tensors.replaced(args[0], where)
        self.halt_if_due()

    def _is_quiet(self) -> bool:
        return self._calls.quiet or _backward_running() != -1


def _is_tensor(value: object) -> bool:
    return issubclass(type(value), Tensor)  # `isinstance` would run a proxy's `__class__`
