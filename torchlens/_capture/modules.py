"""Which module call is running: torch's global module hooks, by frame rather than by counting.

Forward hooks are skipped when a `BaseException` passes, so the frames of the running calls are kept and
compared; a call whose frame is no longer in the chain is over.
"""

from __future__ import annotations

import dis
import sys
from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from threading import get_ident
from types import CellType, CodeType, FrameType
from typing import Any, Final, Protocol, TypeAlias, cast

import torch
from torch import nn
from torch._C._functorch import maybe_current_level as _transform_level
from torch.nn.modules import module as nn_module

from torchlens._capture.call_site import CallSites
from torchlens._capture.compiled import can_run_eagerly, is_compiled_module
from torchlens._capture.fused import FUSING, FusedForwards, forward_cell
from torchlens._capture.holding import Holding
from torchlens._capture.model_state import ModelState
from torchlens._records import ModuleCallEntry
from torchlens._values.plain import SCALARS

PASSING_CODES: Final = (nn.Module._wrapped_call_impl.__code__, nn.Module._call_impl.__code__)
"""The frames between a module's caller and `module_code`."""

_LOOKS: Final = 8
"""How many calls later a module may still take a parameter that was made for it."""
_backward_running = torch._C._current_graph_task_id


class CallEvents(Protocol):
    """The moments of which module calls tell, for more to be written down."""

    def plain(self, value: Any, frame: FrameType | None = None) -> Any: ...
    def root_call_starts(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None: ...
    def root_call_ends(self, call: int, output: Any) -> None: ...
    def call_ends(self, call: int, output: Any) -> None: ...
    def script_call_starts(self, call: int, args: list[Any]) -> None: ...
    def script_call_ends(
        self, call: int, args: tuple[Any, ...], kwargs: Any, output: Any, frame: FrameType
    ) -> None: ...
    def transform_is_over(self, frame: FrameType) -> bool: ...
    def transform_starts(self, frame: FrameType) -> None: ...
    def buffers_may_have_changed(self, module: nn.Module) -> None: ...
    def other_thread_gave(self, output: Any) -> None: ...


_Begun: TypeAlias = tuple[nn.Module, int, int, tuple[Any, ...]]
"""Module, calling module call, first row, arguments. A plain tuple: it is built for each call."""


class ModuleCalls:
    """The module calls of one capture on the thread that opened it."""

    def __init__(
        self,
        state: ModelState,
        sites: CallSites,
        events: CallEvents,
        holding: Holding,
        *,
        expand_fused: bool = False,
        tells_ends: bool = False,
    ) -> None:
        self._tells_ends = tells_ends
        self.roots: list[int] = []
        self.quiet = False
        """True while what runs is not the forward: backward, or the inside of a transform."""
        self.alert = False
        """True while each torch call must first `attend`."""
        self._watched: nn.Module | None = None
        """The innermost module, if it has buffers that may be reassigned."""
        self._state = state
        self._module_index = state.module_index
        self._begun: list[_Begun | None] = [None]
        """By call; the space outside all calls is call 0."""
        self._ended: dict[int, tuple[Any, Any, int | None]] = {}
        """Call to (keyword arguments, output, end)."""
        self._sites = sites
        self._events = events
        self._rows = holding.rows
        self._known = holding.known
        self.notes: set[str] = set()
        self._fused = FusedForwards(self.notes.add if expand_fused else None)
        self._unfusable: set[type] = set()
        """Classes met that have no fused kernel: nearly all."""
        self._scripted: set[type] = set()
        self._module_code = module_code()
        self._thread = get_ident()
        self._pending: list[tuple[int, CellType, FrameType]] = []
        """Calls whose module's own hooks run after ours, until they have run."""
        self._made_params: list[nn.Parameter] = []
        """Parameters made while the model runs, until it is known whether a running module took them."""
        self._looks_left = 0
        self._handles: list[Any] = []

    def open(self) -> None:
        """Install the hooks, both or none."""
        self._sites.forward_called_directly = self.note_direct_forward
        self._handles.append(nn_module.register_module_forward_pre_hook(self._enter))
        self._handles.append(
            nn_module.register_module_forward_hook(self._leave, with_kwargs=True, always_call=True)
        )

    def close(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
            nn_module._global_forward_hooks_with_kwargs.pop(handle.id, None)  # torch leaves this mark behind
        self._handles.clear()

    @contextmanager
    def hooks_away(self) -> Generator[None]:
        """Run the body without our hooks, and put them back where they stood."""
        tables = cast(
            "tuple[OrderedDict[int, object], ...]",
            (nn_module._global_forward_pre_hooks, nn_module._global_forward_hooks),
        )
        ids = [handle.id for handle in self._handles]
        taken = [(table, at, table.pop(at)) for table in tables for at in ids if at in table]
        try:
            yield
        finally:
            for table, at, hook in taken:
                table[at] = hook
                for later in sorted(key for key in table if key > at):  # numbered as they were registered
                    table.move_to_end(later)

    def attend(self, frame: FrameType | None) -> None:
        """Before something happens in `frame`: note reassigned buffers, and outputs that are final now."""
        if self._watched is not None:
            self._events.buffers_may_have_changed(self._watched)
        if self._pending:
            self.settle(frame)
        if self._made_params:
            self._find_holders()

    def param_made(self, param: nn.Parameter) -> None:
        """A call gave a parameter, as offloading does: look, at the next calls, which module takes it."""
        self._made_params.append(param)
        self._looks_left = _LOOKS
        self.alert = True

    def _find_holders(self) -> None:
        """Take up the parameters that running modules hold for no longer than their call."""
        for call in self._sites.calls:
            begun = self._begun[call]
            if begun is not None:
                self._made_params = self._state.take_up(begun[0], self._made_params)
        self._looks_left -= 1
        if not self._looks_left:
            self._made_params = []
        self._watch(self._watched)

    def settle(self, frame: FrameType | None) -> None:
        """Read what callers received from modules whose own hooks are done, `frame` being none of them."""
        running: set[int] = set()
        while frame is not None:
            running.add(id(frame))
            frame = frame.f_back
        pending, self._pending = self._pending, []
        ended: list[tuple[int, Any]] = []
        for call, cell, inner in pending:
            if id(inner) in running:
                self._pending.append((call, cell, inner))
                continue
            given = cell.cell_contents
            self._ended[call] = self._ended[call][0], self._events.plain(given), len(self._rows)
            if call in self.roots:
                self._events.root_call_ends(call, given)
            ended.append((call, given))
        self._watch(self._watched)
        for call, given in ended:
            self._events.call_ends(call, given)

    def _watch(self, module: nn.Module | None) -> None:
        self._watched = module if module is not None and module._buffers else None
        self.alert = self._watched is not None or bool(self._pending or self._made_params)

    @contextmanager
    def hushed(self) -> Generator[None]:
        """Run the body without taking notice of its module calls."""
        before, self.quiet = self.quiet, True
        try:
            yield
        finally:
            self.quiet = before

    def begun(self, call: int) -> tuple[nn.Module, int] | None:
        """The module of a call and the call that it was made in; None for the space outside all calls."""
        begun = self._begun[call]
        return None if begun is None else begun[:2]

    def compiled_calls(self) -> list[int]:
        """The first rows of the calls of modules that were compiled in place (`module.compile()`)."""
        begun = [each for each in self._begun if each is not None]
        return [start for module, _, start, _ in begun if module._compiled_call_impl is not None]

    def entries(self) -> list[ModuleCallEntry]:
        """The calls as plain data, numbered module by module."""
        counts: dict[int, int] = {}
        entries = [ModuleCallEntry(module=0, parent=-1, number=0, start=0)]
        for call, begun in enumerate(self._begun):
            if begun is None:
                continue
            module, parent, start, args = begun
            index = self._state.index_of(module)
            number = counts[index] = counts.get(index, 0) + 1
            kwargs, output, end = self._ended.get(call, ({}, None, None))
            entries.append(ModuleCallEntry(index, parent, number, start, args, kwargs or {}, output, end))
        return entries

    def _enter(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if get_ident() != self._thread or _backward_running() != -1:
            return
        frame = sys._getframe(1)
        if self.quiet and not self._events.transform_is_over(frame):
            return
        if _transform_level() is not None or (
            id(module) not in self._module_index and self._sites.is_in_transform(frame.f_back)
        ):
            self._events.transform_starts(frame)
            return
        sites = self._sites
        if self.alert:
            self.attend(frame.f_back)
        parent = sites.caller_of(frame.f_back)
        call = len(self._begun)
        sites.frames.append(frame)
        sites.calls.append(call)
        self._begun.append((module, parent, 0, ()))  # what is met on the way in belongs to it already
        if type(module) not in self._unfusable:
            self._keep_fused(module, frame)
            if type(module) in self._scripted:
                self._events.script_call_starts(call, [args, frame.f_locals.get("kwargs", {})])
        if id(module) not in self._module_index:
            self._state.index_of(module)  # a module outside the model is named, and its parameters known
        if parent == 0:
            self.roots.append(call)
            self._events.root_call_starts(module, args, frame.f_locals.get("kwargs", {}))
        start = len(self._rows)
        known = self._known
        for value in args:
            if id(value) not in known and type(value) not in SCALARS:
                args = self._events.plain(args, frame.f_back)
                break
        self._begun[call] = module, parent, start, args
        if module._buffers or self._watched is not None:
            self._watch(module)

    def _leave(self, module: nn.Module, args: tuple[Any, ...], kwargs: Any, output: Any = None) -> None:
        # for an exception torch calls without keyword arguments, whatever was asked for
        frame = sys._getframe(1)
        sites = self._sites
        if sites.frames and sites.frames[-1] is frame:
            sites.frames.pop()
            call = sites.calls.pop()
        elif get_ident() != self._thread:
            self._events.other_thread_gave(output)
            return
        elif self.quiet or _backward_running() != -1:
            return
        else:
            call = self._end(module, frame)
            if call is None:
                return
        if self._pending:  # calls within this one end before it does
            self.settle(frame)
        if module._buffers:
            self._events.buffers_may_have_changed(module)
        outer = self._begun[sites.calls[-1]] if sites.calls else None
        if self._watched is not None or (outer is not None and outer[0]._buffers):
            self._watch(outer[0] if outer is not None else None)
        if frame.f_code is not self._module_code:  # called for an exception: the call has no output
            self._ended[call] = self._events.plain(frame.f_locals.get("kwargs", {})), None, None
            return
        if kwargs:
            # item by item: for half of them there is nothing to do, and each walk of a dict takes 4 us
            known, plain = self._known, self._events.plain
            kwargs = {
                name: value if id(value) in known or type(value) in SCALARS else plain(value)
                for name, value in kwargs.items()
            }
        if type(module) in self._scripted:
            self._events.script_call_ends(call, args, kwargs, output, frame)
        recorded = output if id(output) in self._known else self._events.plain(output, frame.f_back)
        self._ended[call] = kwargs, recorded, len(self._rows)
        if module._forward_hooks or module._backward_hooks or module._backward_pre_hooks:
            self._pending.append((call, _result_cell(frame), frame))
            self.alert = True
            return
        if not sites.calls and call in self.roots:
            self._events.root_call_ends(call, output)
        if self._tells_ends:
            self._events.call_ends(call, output)

    def _keep_fused(self, module: nn.Module, frame: FrameType) -> None:
        """Let torch choose a fused kernel as without a capture; remember the classes that have none."""
        if isinstance(module, torch.jit.ScriptModule):
            self._scripted.add(type(module))
        elif not can_run_eagerly() and is_compiled_module(module):
            cell = forward_cell(frame)
            if cell is not None:
                cell.cell_contents = module._orig_mod
        elif not issubclass(type(module), FUSING):
            self._unfusable.add(type(module))
        elif not self._fused.prepare(module, frame) and (note := self._fused.could_not_keep(module)):
            self.notes.add(note)

    def note_direct_forward(self, frame: FrameType) -> None:
        """A `forward` runs without `__call__`: it is no module call, and may lose its fused kernel."""
        if note := self._fused.bypassed(frame):
            self.notes.add(note)
        names = frame.f_code.co_varnames
        module = frame.f_locals.get(names[0]) if names else None
        running = self._sites.frames[-1].f_locals.get("self") if self._sites.frames else None
        if (
            isinstance(module, nn.Module) and module is not running
        ):  # `super().forward(x)` stays within the call
            name = type(module).__name__
            self.notes.add(
                f"{name}.forward was called without __call__: its ops belong to the caller's scope."
            )

    def _end(self, module: nn.Module, frame: FrameType) -> int | None:
        """Take the module's call off the stack, with calls above it that an exception ended."""
        sites = self._sites
        level = len(sites.frames) - 1
        while level >= 0 and sites.frames[level] is not frame:
            level -= 1
        if level < 0:  # called for an exception, after the call's own frame is gone
            level = self._innermost_call_of(module)
            if level < 0:
                return None
        call = sites.calls[level]
        del sites.frames[level:], sites.calls[level:]
        return call

    def _innermost_call_of(self, module: nn.Module) -> int:
        for level in range(len(self._sites.calls) - 1, -1, -1):
            begun = self._begun[self._sites.calls[level]]
            if begun is not None and begun[0] is module:
                return level
        return -1


def module_code() -> CodeType:
    """The code of the frame that calls a module's forward and hooks when hooks are present."""
    call_impl = nn.Module._call_impl.__code__
    inner = [
        const for const in call_impl.co_consts if isinstance(const, CodeType) and const.co_name == "inner"
    ]
    return inner[0] if inner else call_impl


@cache
def forward_offset(code: CodeType) -> int:
    """The instruction of `module_code()` that calls `forward`."""
    instructions = list(dis.get_instructions(code))
    loads = [at for at, instruction in enumerate(instructions) if instruction.argval == "forward_call"]
    calls = (i.offset for i in instructions[loads[-1] :] if i.opname.startswith("CALL_FUNCTION"))
    return next(calls)


def _result_cell(frame: FrameType) -> CellType:
    """The variable that will hold what the module's caller receives, once its own hooks have run."""
    caller = frame.f_back
    assert caller is not None
    inner = caller.f_locals["inner"]
    return inner.__closure__[inner.__code__.co_freevars.index("result")]
