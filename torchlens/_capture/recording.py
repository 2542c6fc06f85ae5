"""Appending rows: one torch call made and written down, with what its kind asks for."""

from __future__ import annotations

from time import perf_counter_ns
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from torchlens._capture.closures import closed_over
from torchlens._capture.control_flow import as_without_capture
from torchlens._capture.kinds import Special
from torchlens._capture.modules import ModuleCalls
from torchlens._capture.random_state import generator_states
from torchlens._capture.tensors import Tensors
from torchlens._capture.writes import Target, is_gathered, out_targets, region, with_inner
from torchlens._records import Context, Side
from torchlens._unseen import unseen
from torchlens._values.geometry import dtype_name, is_wrapper
from torchlens._values.ghost import Recorded
from torchlens._values.ledger import MetadataWrite, Write, was_half_done
from torchlens._values.plain import tensors_in

_grad_enabled = torch.is_grad_enabled
_inference_mode = torch.is_inference_mode_enabled
_any_autocast = torch._C._is_any_autocast_enabled


class Recording:
    """The rows of one capture as they grow, and what goes with some of them."""

    def __init__(self, tensors: Tensors, calls: ModuleCalls) -> None:
        self.rows = tensors.holding.rows
        self.generators: dict[int, list[tuple[str, Tensor]]] = {}
        self.reads: list[tuple[int, str, Recorded]] = []
        self.contexts: list[Context] = []
        self.context_index: dict[tuple[Any, ...], int] = {}
        self._tensors = tensors
        self._calls = calls
        self._states: list[tuple[str, Tensor]] = []
        self.context(factory=False)  # what rows that are no calls stand under

    def call(
        self,
        func: Any,
        special: Special,
        where: tuple[int, int],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        caller: FrameType,
    ) -> Any:
        """Make a call that is not plain and append its row."""
        recorded = self._tensors.plain_args(args, caller)
        recorded_kwargs = self._tensors.plain_kwargs(kwargs, caller) if kwargs else None
        if special.control_flow and (closed := closed_over([args, kwargs])):
            found = [self._tensors.meet(tensor, caller, name) for name, tensor in closed]
            recorded_kwargs = {**(recorded_kwargs or {}), "closures": tuple(found)}
        if special.read and (read := tensors_in([*args, kwargs])):
            self.reads.append((len(self.rows), special.name, self._tensors.meet(read[0], caller)))
            self._tensors.leaves(special.name, read[0])
        draws = special.draws is not None and special.draws(args, kwargs)
        # a call whose values are not kept is not made again either
        states = self._generator_states(kwargs) if draws and self._tensors.holding.is_whole else None
        targets = special.writes(args, kwargs) if special.writes else []
        if kwargs.get("out") is not None:
            targets = out_targets(kwargs["out"])
        if targets and any(is_wrapper(target.tensor) for target in targets):
            with unseen():
                targets = with_inner(targets)
        writes = self._before_writes(targets) if targets else []
        context = self.context(special.factory)
        run = as_without_capture(func, caller, self._calls.hooks_away) if special.control_flow else func
        start = perf_counter_ns()
        try:
            out = run(*args, **kwargs)
        except BaseException:
            for target, write in writes:
                self._tensors.ledger.end_write(write, target.tensor)
                if isinstance(write, Write) and was_half_done(write):  # no op says so
                    self._tensors.doubts.add("unexplained_write", len(self.rows))
            raise
        duration = perf_counter_ns() - start
        produced = out
        if targets and not (len(targets) == 1 and out is targets[0].tensor):
            produced = self._tensors.with_written(out, targets)
        kind = "boundary" if special.boundary or special.control_flow else "call"
        row = len(self.rows)
        head = (kind, func, *where, context, recorded, recorded_kwargs)
        if self.append(head, produced, duration, None):
            if special.from_host:
                self._tensors.host.made(row, produced, self._tensors.alias)
            if states is not None:
                self.generators[row] = states
            if targets:
                with unseen():
                    self._tensors.after_writes(writes, row, where)
        return out

    def append(self, head: tuple[Any, ...], out: Any, duration: int, side: Side) -> bool:
        """Append the row that begins with `head`; False, and no row, when its result holds no tensor."""
        if isinstance(out, Tensor):
            if type(out) is nn.Parameter and not self._tensors.holds(out):
                self._calls.param_made(out)
        else:
            out = tuple(tensors_in(out))
            if not out:
                return False
        self._tensors.holding.append(head, out, duration, side)
        return True

    def context(self, factory: bool) -> int:
        """The index of the context that a call made now runs under."""
        key: tuple[Any, ...] = (_grad_enabled(), _inference_mode(), _any_autocast())
        if factory:  # elsewhere the defaults do not matter, and asking for them costs more than the rest
            key = (*key, torch.get_default_dtype(), _default_device())
        index = self.context_index.get(key)
        return self.add_context(key) if index is None else index

    def add_context(self, key: tuple[Any, ...]) -> int:
        """Describe a context met for the first time."""
        index = self.context_index[key] = len(self.contexts)
        dtype, device = key[3:] or (torch.get_default_dtype(), _default_device())
        autocast = {
            kind: dtype_name(torch.get_autocast_dtype(kind))
            for kind in torch._C._autocast_supported_devices()
            if key[2] and torch.is_autocast_enabled(kind)
        }
        self.contexts.append(Context(key[0], key[1], autocast, dtype_name(dtype), str(device)))
        return index

    def _generator_states(self, kwargs: dict[str, Any]) -> list[tuple[str, Tensor]]:
        """The states before a call that may draw; the last ones again where nothing was drawn since."""
        with unseen():
            return self._states_now(generator_states(kwargs.get("generator")))

    def _states_now(self, states: list[tuple[str, Tensor]]) -> list[tuple[str, Tensor]]:
        if [device for device, _ in states] == [device for device, _ in self._states] and all(
            torch.equal(new, old) for (_, new), (_, old) in zip(states, self._states)
        ):
            return self._states
        self._states = states
        return states

    def _before_writes(self, targets: list[Target]) -> list[tuple[Target, Write | MetadataWrite]]:
        writes: list[tuple[Target, Write | MetadataWrite]] = []
        ledger = self._tensors.ledger
        with unseen():
            self._tensors.before_write(targets)
            for target in targets:
                if target.metadata:
                    writes.append((target, ledger.before_metadata(target.tensor)))
                    continue
                where, index = _described(target)
                writes.append((target, ledger.before_write(target.tensor, where, index)))
        return writes


def _described(target: Target) -> tuple[Tensor, Any]:
    """What to save before a write: a view, and an index into it where only an index tells the elements."""
    index = target.index if is_gathered(target) else None
    try:
        return region(target), index
    except (IndexError, RuntimeError, TypeError, ValueError):  # torch will refuse the index in its own words
        return target.tensor, None


def _default_device() -> str:
    """Where factories put tensors. Asked only when a mode that could change it is on: asking is slow."""
    return str(torch.get_default_device()) if torch._C._len_torch_function_stack() else "cpu"
