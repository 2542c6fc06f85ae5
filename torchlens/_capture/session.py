"""One capture from start to end: installs the mode and the hooks, all or none, and takes them away again."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import FrameType
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.overrides import _get_current_function_mode_stack

from torchlens._capture.boundaries import TRANSFORM_FILES, Transform, Transforms
from torchlens._capture.call_site import CallSites
from torchlens._capture.choices import Choices
from torchlens._capture.choosing import Chooser
from torchlens._capture.compiled import COMPILER_FILE, SKIPPED, can_run_eagerly
from torchlens._capture.function_mode import FunctionMode
from torchlens._capture.ghosts_held import GhostsHeld
from torchlens._capture.holding import AllHeld, Holding
from torchlens._capture.input_names import InputNames, entry_of
from torchlens._capture.model_state import ModelState
from torchlens._capture.modules import PASSING_CODES, ModuleCalls, forward_offset, module_code
from torchlens._capture.placing import Live, Placing, placing_of
from torchlens._capture.post_mortem import PostMortem
from torchlens._capture.recording import Recording
from torchlens._capture.tensors import Tensors
from torchlens._capture.to_files import ToFiles
from torchlens._capture.unseen_work import UnseenWork
from torchlens._capture.witness import Witness
from torchlens._capture.writes import Target
from torchlens._records import Failure, ModuleCallEntry, Reached, Record, Rows, RunOptions, Status
from torchlens._terms import NOTHING
from torchlens._unseen import unseen
from torchlens._values.ledger import Ledger
from torchlens._values.plain import plain, recorded_in, tensors_in
from torchlens._values.store import ValueStore
from torchlens._values.versions import any_moved, version_of
from torchlens.errors import NestedCaptureError
from torchlens.options import CaptureOptions


@dataclass(slots=True)
class Captured:
    """What a capture leaves: the record, and the ledger of what was overwritten."""

    record: Record
    ledger: Ledger
    doubtful: Sequence[int] = ()
    """Rows of buffer versions that are kept until their labels tell whether they are meant."""


def refuse_nested() -> None:
    """Raise if a capture is open on this thread."""
    if any(isinstance(mode, FunctionMode) for mode in _get_current_function_mode_stack()):
        raise NestedCaptureError(
            "a capture is already open on this thread; end it before the next one starts, "
            "or read what the outer capture recorded"
        )


class Session:
    """A capture while it is open."""

    def __init__(
        self,
        root: nn.Module | None,
        named: Mapping[str, nn.Module],
        root_name: str,
        options: CaptureOptions,
        choices: Choices,
    ) -> None:
        self._options = options
        self._choices = choices
        self._lost: str | None = None
        """What could not be written, and why."""
        self._placing = self._placing_of(options, choices)
        self._holding = _holding(options, choices, self._placing)
        self._rows = self._holding.rows
        self._state = ModelState(root, named, root_name)
        code = module_code()
        index_of = cast("Callable[[object], int]", self._state.index_of)  # call sites know no torch
        self._sites = CallSites(code, forward_offset(code), PASSING_CODES, index_of)
        self._sites.transform_files = TRANSFORM_FILES
        if not can_run_eagerly():
            self._sites.compiler_file = COMPILER_FILE
            self._sites.compiled_code_called = self._compiled_code_called
        self._tensors = Tensors(self._holding, self._sites, self._state, options.max_copied)
        self._calls = ModuleCalls(
            self._state,
            self._sites,
            self,
            self._holding,
            expand_fused=options.fused == "expand",
            tells_ends=choices.are_made,
        )
        self._chooser: Chooser | None = None
        if choices.goals or (choices.saved != NOTHING and not self._holding.is_whole):
            self._chooser = Chooser(choices, self._sites, self._state, self._calls)
            self._chooser.attach(self._rows, self._holding)
            self._holding.choose_by(self._chooser)
        self._transforms = Transforms(self._tensors, self._transform_returned)
        self._script_inputs: dict[int, list[tuple[Tensor, int | None]]] = {}
        """Of running calls of TorchScript modules, the tensors given and their version counters."""
        self._recording = Recording(self._tensors, self._calls)
        self._witness: Witness | None = None
        if options.witness:
            self._tensors.unseen_work = UnseenWork(self._rows, self._sites)
            self._witness = Witness(self._recording, self._transforms, self._tensors.unseen_work)
        self._mode = FunctionMode(
            self._recording, self._sites, self._calls, self._tensors, self._transforms, self._chooser
        )
        self._input_names = InputNames()
        self._output_rows: list[int] = []
        self._block = True
        self._ending = False
        """Whether the forward is over, so that nothing is left to be halted."""
        self._output: Any = None

    def _placing_of(self, options: CaptureOptions, choices: Choices) -> Placing | None:
        if choices.disk is not None:
            return ToFiles(choices.disk, self._describe)
        return placing_of(options)

    def _describe(self, row: int, slot: int) -> dict[str, str | int | None]:
        assert self._chooser is not None
        return self._chooser.describe(row, slot)

    def open(self) -> None:
        """Start recording on this thread."""
        with ExitStack() as opened:
            if self._placing is not None:
                self._placing.open()
                opened.callback(self._placing.close)
            self._sites.open(sys._getframe(1))
            opened.callback(self._sites.close)
            self._tensors.open()
            opened.callback(self._tensors.close)
            opened.callback(self._calls.close)
            self._calls.open()
            self._mode.__enter__()
            opened.callback(_take_off, self._mode)
            if self._witness is not None:
                self._witness.open()
            opened.pop_all()

    def close(self, error: BaseException | None = None) -> Captured:
        """Stop recording and hand over what was written down."""
        self._stop(error)
        doubtful = [] if self._chooser is None else self._chooser.doubtful
        captured = Captured(self._record(error), self._tensors.ledger, doubtful)
        with torch._C.DisableTorchFunction():  # a subclass must not see our reads
            self._note_changes(captured)
        for row in [] if can_run_eagerly() else self._calls.compiled_calls():
            self._compiled_code_called(row)
        if self._witness is not None:
            captured.record.census = self._witness.census(self._tensors.doubts)
        captured.record.reasons = self._tensors.doubts.reasons()
        self._let_go()
        return captured

    @property
    def halted(self) -> bool:
        """Whether the forward was ended before it was through."""
        return self._mode.halted

    def abandon(self) -> None:
        """Stop recording and drop what was written down."""
        try:
            self._stop(None)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        """Part from each other: parts that call each other would wait for the collector."""
        self._holding.close()
        vars(self).clear()

    def _stop(self, error: BaseException | None) -> None:
        """Take away all that was installed, also when some of it fails."""
        with ExitStack() as last:  # from the bottom up
            last.callback(self._end_placing)
            last.callback(self._mode.close)
            last.callback(self._sites.close)
            last.callback(self._tensors.close)
            last.callback(self._note_late_changes, error)
            last.callback(self._transforms.abandon)
            last.callback(self._calls.close)
            last.callback(_take_off, self._mode)
            if self._witness is not None:
                self._witness.close()

    def _end_placing(self) -> None:
        self._lost = None if self._placing is None else self._placing.close()

    def _note_late_changes(self, error: BaseException | None) -> None:
        if error is None:
            self._ending = True
            self._calls.settle(None)
        for module in list(self._state.modules):
            if module._buffers:
                self._tensors.buffers_may_have_changed(module)

    def run(self, model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Call the model on its inputs and note what comes back as the trace's output."""
        self._block = False
        self._sites.open(sys._getframe(0))  # our own frame is no part of a chain
        self._add_inputs(entry_of(model), args, kwargs)
        self._mode.halt_if_due()
        output = model(*args, **kwargs)
        if not self._mode.halted:
            self._note_output(output)

    def plain(self, value: Any, frame: FrameType | None = None) -> Any:
        """A value as plain data, its tensors met; `frame` is whose names they may go by."""
        return plain(value, lambda tensor: self._tensors.meet(tensor, frame))

    def root_call_starts(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._block:
            self._add_inputs(module, args, kwargs)

    def _add_inputs(self, called: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._tensors.sources.given(args, kwargs)
        added = self._tensors.add_inputs(tensors_in([args, kwargs]))
        if added:
            self._input_names.add(called, args, kwargs, added)

    def root_call_ends(self, call: int, output: Any) -> None:
        if self._block:
            self._note_output(output)

    def script_call_starts(self, call: int, args: list[Any]) -> None:
        self._script_inputs[call] = [(tensor, version_of(tensor)) for tensor in tensors_in(args)]

    def script_call_ends(
        self, call: int, args: tuple[Any, ...], kwargs: Any, output: Any, frame: FrameType
    ) -> None:
        """A TorchScript module ran in its interpreter: its call is one op, keyed by the place of the call."""
        caller = self._sites.outside(frame)
        site, _ = self._sites.locate(caller)
        given = self._script_inputs.pop(call)
        moved = [(tensor, version) for tensor, version in given if version_of(tensor) != version]
        with torch._C.DisableTorchFunction():
            out = self._tensors.with_written(output, [Target(tensor) for tensor, _ in moved])
            row = self._append_boundary("torchscript", site, call, (args, kwargs, out), caller)
            if row is not None:
                self._tensors.note_writes(moved, row, (site, call), "TorchScript wrote it")

    def _compiled_code_called(self, at: int | None = None) -> None:
        row = len(self._rows) if at is None else at
        self._tensors.doubts.add("compiled_region_skipped", row, text=SKIPPED)

    def transform_starts(self, frame: FrameType) -> None:
        assert frame.f_back is not None
        self._mode.begin_transform(frame.f_back)  # `frame` itself ends chains

    def transform_is_over(self, frame: FrameType) -> bool:
        return self._mode.transform_is_over(frame)

    def other_thread_gave(self, output: Any) -> None:
        tensors = vars(self).get("_tensors")
        if tensors is not None:  # the capture may have ended while that thread was on its way here
            tensors.threads.module_gave(output)

    def buffers_may_have_changed(self, module: nn.Module) -> None:
        self._tensors.buffers_may_have_changed(module)

    def call_ends(self, call: int, output: Any) -> None:
        """A module call has given this to its caller."""
        if self._chooser is None or self._mode.halted:
            return
        if self._chooser.awaits(call):
            self._tell_returned(self._chooser, call, output)
        self._mode.halt_if_due(later=self._ending)

    def _tell_returned(self, chooser: Chooser, call: int, output: Any) -> None:
        given: list[tuple[int, int, Tensor]] = []
        with torch._C.DisableTorchFunction():
            for tensor in tensors_in(output):
                made = self._holding.maker(tensor)
                if made is not None:
                    given.append((*made, tensor))
            chooser.returned(call, given)

    def _transform_returned(self, transform: Transform, output: Any) -> None:
        self._calls.quiet = False
        caller = transform.frame.f_back
        with torch._C.DisableTorchFunction():  # the mode is on
            where = self._sites.locate(caller)
            out = self._tensors.with_written(output, [target for target, _ in transform.writes])
            io = tuple(transform.inputs.values()), None, out
            row = self._append_boundary(transform.name, *where, io, caller)
            if row is not None and transform.writes:
                with unseen():
                    self._tensors.after_writes(transform.writes, row, where, ended=True)
        self._mode.halt_if_due(later=True)  # raised here, it would end the user's profiler

    def _append_boundary(
        self,
        name: str,
        site: int,
        call: int,
        io: tuple[tuple[Any, ...], Any, Any],
        caller: FrameType | None,
    ) -> int | None:
        """Append a boundary op, `io` being (args, kwargs, output). Its row; None if it gave no tensor."""
        args, kwargs, output = io
        args = self.plain(args, caller)
        kwargs = self.plain(kwargs, caller) if kwargs else None
        place = self._sites.enter_boundary(site, name)
        context = self._recording.context(factory=False)
        row = len(self._rows)
        appended = self._recording.append(
            ("boundary", name, place, call, context, args, kwargs), output, 0, None
        )
        return row if appended else None

    def _note_output(self, output: Any) -> None:
        with torch._C.DisableTorchFunction():  # hooks run with the mode on
            if self._block:  # of several calls none is the trace's output
                self._holding.drop_outputs()
            given = zip(recorded_in(self.plain(output)), tensors_in(output))
            heads = ((("output", "output", 0, 0, 0, (held,), None), held, tensor) for held, tensor in given)
            rows = [self._holding.repeat(*each) for each in heads]
            self._output_rows += rows
            held = iter(rows)
            self._output = plain(output, lambda tensor: self._rows[next(held)][7])

    def _record(self, error: BaseException | None) -> Record:
        status: Status = "complete" if error is None else "failed"
        halted_at = self._halted_at()
        if halted_at is not None:
            status, error = "halted", None
        if self._chooser is not None:
            self._chooser.settle()
        module_calls = self._calls.entries()  # which may name modules met outside the model
        return Record(
            rows=Rows.from_tuples(self._rows),
            places=self._sites.places,
            contexts=self._recording.contexts,
            structure=self._state.structure(),
            module_calls=module_calls,
            generators=self._recording.generators,
            reads=self._recording.reads,
            aliases=self._tensors.aliases,
            inputs=self._tensors.inputs,
            outputs=self._output_rows,
            output=self._output,
            is_block=self._block,
            root_calls=self._calls.roots,
            status=status,
            failure=None if error is None else self._failure(error, module_calls),
            notes=self._notes(),
            reasons=(),
            host_edges=self._tensors.host.edges,
            options=self._run_options(),
            halted_at=halted_at,
            input_names=[self._input_names.of_row.get(row) for row in self._tensors.inputs],
        )

    def _failure(self, error: BaseException, calls: Sequence[ModuleCallEntry]) -> Failure:
        handler = FunctionMode.__torch_function__.__code__
        index_of = self._state.module_index
        return PostMortem(handler, self._mode, module_code(), self._identify).failure(error, calls, index_of)

    def _identify(self, tensor: Tensor) -> tuple[tuple[int, int] | None, str | None]:
        """The row and output that gave a tensor last, and the address of the parameter that it is."""
        return self._holding.maker(tensor), self._state.param_address(tensor)

    def _halted_at(self) -> Reached | None:
        reached = [goal.reached for goal in self._choices.goals if goal.reached is not None]
        return max(reached, key=lambda each: each.row) if self._mode.halted else None

    def _note_changes(self, captured: Captured) -> None:
        """Note what only shows at the end: changes of memory that no op explains."""
        record, doubts = captured.record, self._tensors.doubts
        store = ValueStore(record, captured.ledger)
        structure = record.structure
        held = [(tensor, version) for tensor, _, version in structure.held_params]
        held += [(buffer.initial, buffer.version) for _, buffer in structure.held_buffers]
        # in most runs nothing is written, which one look at each counter shows
        if any_moved(held) or self._holding.may_have_changed():
            for row in store.unexplained_rows():
                doubts.add("unexplained_write", max(row, 0), row=None if row < 0 else row)
        self._tensors.note_swapped()
        # what a forward returned was read last of all
        returned = [] if self._block else self._output_rows[:1]
        captured.ledger.end(*returned or [len(self._rows)])
        for memory in captured.ledger.changed:
            doubts.add(memory.reason, memory.row)

    def _notes(self) -> list[str]:
        notes = sorted(self._calls.notes)
        if self._chooser is not None:
            notes += self._chooser.notes()
        if self._lost is not None:
            notes.append(self._lost)
        if self._tensors.ledger.handed_out.gave_up:
            notes.append("So much memory was handed out that later writes beside torch were not looked for.")
        if self._mode.backward_calls:
            count = self._mode.backward_calls
            calls = "1 backward call" if count == 1 else f"{count} backward calls"
            notes.append(f"{calls} ran during the capture; what backward does is no forward op.")
        if self._mode.kept_whole:
            names = ", ".join(sorted(self._mode.kept_whole))
            notes.append(
                f"{names} ran as one op each: another function mode or a tensor subclass looks on, and torch "
                "shows it whole functions."
            )
        return notes

    def _run_options(self) -> RunOptions:
        options, choices = self._options, self._choices
        return RunOptions(
            options.seed,
            options.max_copied,
            str(torch.__version__),
            platform.python_version(),
            fused=options.fused,
            save=None if self._holding.is_whole else str(choices.saved),
        )


def _holding(options: CaptureOptions, choices: Choices, placing: Placing | None) -> Holding:
    if choices.save is None and placing is None:
        return AllHeld([], watched=choices.are_made)
    return GhostsHeld([], placing or Live(detached=False), keep_connected=options.backward_ready)


def _take_off(mode: FunctionMode) -> None:
    """Remove the mode, also from under modes that the user's code left on."""
    above: list[Any] = []
    while (top := torch._C._pop_torch_function_stack()) is not mode:
        above.append(top)
    for other in reversed(above):
        torch._C._push_on_torch_function_stack(other)
