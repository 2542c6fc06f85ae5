"""What each tensor that enters a call is: known already, an input, a parameter, a buffer, or a source."""

from __future__ import annotations

from collections.abc import Sequence
from types import FrameType
from typing import Any, cast

import torch
from torch import Tensor, nn

from torchlens._capture.call_site import CallSites
from torchlens._capture.doubts import Doubts
from torchlens._capture.holding import Holding
from torchlens._capture.host import LEAVING, HostData, is_torchs_memory
from torchlens._capture.model_state import BufferSlot, ModelState
from torchlens._capture.sources import Sources
from torchlens._capture.threads import ThreadWatch
from torchlens._capture.unseen_work import NAME as UNSEEN
from torchlens._capture.unseen_work import UnseenWork
from torchlens._capture.writes import Target
from torchlens._values.geometry import region_of, storage_key
from torchlens._values.ghost import Recorded
from torchlens._values.ledger import Ledger, MetadataWrite, Write
from torchlens._values.plain import SCALARS, plain, tensors_in
from torchlens._values.region import last_writers
from torchlens._values.versions import version_of


class Tensors:
    """Knows every tensor of one capture and who wrote into it."""

    def __init__(self, holding: Holding, sites: CallSites, state: ModelState, max_copied: int | None) -> None:
        rows = holding.rows
        self.holding = holding
        self.doubts = Doubts()
        self._first_params = state.param_ids()
        # parameters are most of what calls are given for the first time: meeting one takes 7 us
        holding.take_all(state.params_alone())
        self.inputs: list[int] = []
        self.aliases: list[tuple[int, Recorded, Recorded]] = []
        """(row count at that moment, alias, known tensor on the same storage)."""
        self._source_rows: dict[int, int] = {}
        self.ledger = Ledger(holding, max_copied)
        self.threads = ThreadWatch(rows, self.doubts)
        self.host = HostData(holding, sites, self.ledger.shared_memory, self.doubts)
        self.unseen_work: UnseenWork | None = None
        """With a witness, the operators that no torch call explains."""
        self.sources = Sources(sites, state, self.host, self.threads, holding.known)
        self._rows = rows
        self._sites = sites
        self._state = state
        self._params_noted: int | None = None
        self._young_params: frozenset[int] = frozenset()
        self._params_judged = state.num_params
        self._first_slots = len(state.slots)

    def open(self) -> None:
        """Start to watch what happens beside torch's calls."""
        self.sources.ages.open()
        self.threads.open()

    def close(self) -> None:
        """Stop watching and let go of everything of the user's."""
        self.threads.close()
        self.sources.close()

    def plain_args(self, args: tuple[Any, ...], frame: FrameType) -> tuple[Any, ...]:
        """The arguments of a call as plain data, each tensor in them met. Unchanged ones stay the same."""
        return self.holding.args(args, frame, self._plain)

    def plain_kwargs(self, kwargs: dict[str, Any], frame: FrameType) -> dict[str, Any]:
        return dict(zip(kwargs, self.plain_args(tuple(kwargs.values()), frame)))

    def add_inputs(self, found: list[Tensor]) -> list[tuple[int, Tensor]]:
        """Tensors given from outside: each once, unless it is a parameter, a buffer or known already.

        The rows of those that were not inputs yet.
        """
        before = len(self.inputs)
        added: list[tuple[int, Tensor]] = []
        with torch._C.DisableTorchFunction():  # the mode is on
            for tensor in found:
                self._add_input(tensor)
                added += [(row, tensor) for row in self.inputs[before + len(added) :]]
        return added

    def _add_input(self, tensor: Tensor) -> None:
        known = self.holding.recorded(tensor)
        source = self._source_rows.pop(id(tensor), None)
        if source is not None and known is not None:  # the block used it before
            self._rows[source] = ("input", "input", *self._rows[source][2:])
            self.inputs.append(source)
        elif not (known is not None or self._state.holds(tensor)):
            row = self._add_row("input", "input", tensor)
            something_ran = row > len(self.inputs)
            self.inputs.append(row)
            self.host.comes_in(tensor)
            if something_ran:  # of which it may have been made, unseen
                self.sources.judge(row, tensor, "input", self.doubts)

    def holds(self, tensor: Tensor) -> bool:
        """Whether the tensor is a parameter or a buffer of a known module."""
        return self._state.holds(tensor)

    def meet(self, tensor: Tensor, frame: FrameType | None, name: str | None = None) -> Recorded:
        """What rows hold for a tensor. One that no call made is identified, and written down where it is no
        parameter; `name` is what it goes by where the frames tell none.
        """
        known = self.holding.recorded(tensor)
        if known is None:
            self._identify(tensor, frame, name)
            known = self.holding.recorded(tensor)
            assert known is not None
        return known

    def _identify(self, tensor: Tensor, frame: FrameType | None, name: str | None) -> None:
        slot = self._state.slot_holding(tensor)
        # hooks run with the mode on, and a tensor subclass must not see our calls either
        with torch._C.DisableTorchFunction():
            if slot is not None and slot.initial is tensor and not slot.rows:
                self._add_start(slot)
                if slot.index >= self._first_slots:  # registered since the capture began
                    self.sources.judge(slot.rows[0], tensor, self._rows[slot.rows[0]][1], self.doubts)
            elif id(tensor) in self._first_params:
                self.holding.take(tensor, lasting=True)
            elif self.alias(tensor, len(self._rows)):
                pass
            elif self._is_new_param(tensor):
                self.holding.take(tensor, lasting=True)
                if id(tensor) in self._young_params:
                    self.doubts.add("unknown_origin", len(self._rows))
            else:
                self._add_source(tensor, frame, name)

    def alias(self, tensor: Tensor, row: int) -> bool:
        """Take a tensor object for another view of what a known one covers, if one does, from a row on."""
        if self.holding.recorded(tensor) is not None:
            return True
        original = self._same_storage(tensor)
        if original is None:
            return False
        self.aliases.append((row, self.holding.take(tensor), original))
        return True

    def _is_new_param(self, tensor: Tensor) -> bool:
        """Whether a module has registered the tensor as a parameter since it was walked."""
        if not isinstance(tensor, nn.Parameter):
            return False
        self._state.rescan()
        if self._params_judged != self._state.num_params:
            self._params_judged = self._state.num_params
            self._young_params = self.sources.ages.young_among(self._state.param_ids())
        return self._state.param_of(tensor)

    def buffers_may_have_changed(self, module: nn.Module) -> None:
        """Note the buffers of a module that were assigned another tensor."""
        with torch._C.DisableTorchFunction():  # hooks run with the mode on
            for slot, tensor in self._state.reassigned(module):
                if not slot.rows:
                    self._add_start(slot)
                self.meet(tensor, None)
                self._add_version(slot, tensor, self._maker_place(tensor))

    def note_swapped(self) -> None:
        """Say so if a parameter lies on another storage than at the start, and no call put it there."""
        for param in self._state.params_elsewhere():
            if id(param) not in self.ledger.metadata:
                self.doubts.add("unexplained_write", len(self._rows))
                self.ledger.lose(param, len(self._rows), "its parameter was given another storage, by no op")

    def before_write(self, targets: Sequence[Target]) -> None:
        """Note which storages are never copied, and the starting values of buffers about to be written.

        Nothing is paid for this until something is written.
        """
        for target in targets:
            for slot in [] if target.metadata else self._state.slots_on(storage_key(target.tensor)):
                if not slot.rows:
                    self._add_start(slot)
        self.holding.note_writes([target.tensor for target in targets])
        count = self._state.num_params
        if self._params_noted != count:
            self._params_noted = count
            self.ledger.param_storages = self._state.param_storages()

    def with_written(self, out: Any, targets: list[Target]) -> Any:
        """What a call gave, and then each tensor that it wrote without giving it back.

        A buffer is left out where something else came back: what was written there is the value of its new
        version.
        """
        given = tensors_in(out)
        seen = set(map(id, given))
        written: list[Tensor] = []
        for target in targets:
            shown = target.tensor if target.shown is None else target.shown
            apart = target.metadata or self._state.slot_holding(shown) is not None
            if id(shown) not in seen and (not given or not apart):
                seen.add(id(shown))
                written.append(shown)
        if not written:
            return out
        return (*given, *written) if len(given) + len(written) > 1 else written[0]

    def after_writes(
        self,
        writes: Sequence[tuple[Target, Write | MetadataWrite]],
        row: int,
        where: tuple[int, int],
        *,
        ended: bool = False,
    ) -> None:
        """Complete the writes of the call recorded as `row`; each buffer they reach has a new version.

        `ended` writes have been completed when they happened, and are now given their op.
        """
        slots = self._slots(row)
        reached: dict[int, BufferSlot] = {}
        for target, write in writes:
            tensor = target.tensor
            shown = tensor if target.shown is None else target.shown
            slot_of = slots.get(id(self.holding.recorded(shown)))
            if slot_of is not None:
                self.ledger.inplace.add((row, slot_of))
            if isinstance(write, MetadataWrite):
                self.ledger.after_metadata(write, tensor)
                self._state.buffers_moved()
                held = self._state.slot_holding(tensor)
                found = [held] if held is not None else []
            else:
                if target.shown is not None and write.left_all_as_it_was():
                    continue
                if ended:
                    write.belong_to(row, slot_of or 0)
                else:
                    self.ledger.after_write(write, tensor, row, slot_of or 0)
                found = self._state.slots_on(storage_key(tensor))
                for mirror in write.mirrors:
                    found = [*found, *self._state.slots_on(storage_key(mirror.tensor))]
            reached.update((slot.index, slot) for slot in found)
        for slot in reached.values():
            assert slot.current is not None
            self._add_version(slot, slot.current, where)

    def note_writes(
        self, moved: list[tuple[Tensor, int | None]], row: int, where: tuple[int, int], writer: str
    ) -> None:
        """Note writes that only version counters show; each tensor with the count it had before."""
        slots = self._slots(row)
        lost = f"{writer} where it could not be seen beforehand; clone it before"
        for tensor, version in moved:
            bumps = (version_of(tensor) or 0) - (version or 0)
            slot_of = slots.get(id(self.holding.recorded(tensor)))
            self.ledger.note_write(tensor, row, slot_of or 0, bumps, lost)
            if slot_of is not None:
                self.ledger.inplace.add((row, slot_of))
            for slot in self._state.slots_on(storage_key(tensor)):
                assert slot.current is not None
                self._add_version(slot, slot.current, where)

    def _slots(self, row: int) -> dict[int, int]:
        """By the id of what the row holds, which of its outputs it is."""
        out: Any = self._rows[row][7]
        outs = cast("tuple[Recorded, ...]", out) if type(out) is tuple else (out,)
        return {id(held): slot for slot, held in enumerate(outs)}

    def replaced(self, tensor: Tensor, where: tuple[int, int]) -> None:
        """A tensor object was given another storage (`x.data = y`)."""
        self._state.buffers_moved()
        slot = self._state.slot_holding(tensor)
        if slot is not None:
            self._add_version(slot, tensor, where)

    def leaves(self, name: str, tensor: Tensor) -> None:
        """A read of this name hands the tensor's value, or its memory, out of torch."""
        if name in LEAVING and not self.host.anything_left:  # from now on the host may write of it
            buffers = [slot.current for slot in self._state.slots if slot.current is not None]
            for held in [*self.host.foreign, *buffers]:
                if not is_torchs_memory(held):
                    self.ledger.handed_out.leaves("numpy", held, len(self._rows))
        if name != "tolist":
            self.holding.note_lent(tensor)
        self.host.leaves(name, tensor, self.meet(tensor, None))
        self.ledger.handed_out.leaves(name, tensor, len(self._rows))

    def _plain(self, value: Any, frame: FrameType) -> Any:
        kind = cast("type[Any]", type(value))
        if kind is tuple and SCALARS.issuperset(map(type, value)):
            return value
        return plain(value, lambda tensor: self.meet(tensor, frame))

    def _add_version(self, slot: BufferSlot, tensor: Tensor, where: tuple[int, int]) -> None:
        site, call = where
        given = self.holding.recorded(tensor)
        assert given is not None
        head = ("buffer", self._state.name_of(slot), site, call, 0, (given,), None)
        slot.rows.append(self.holding.append(head, tensor))

    def _add_start(self, slot: BufferSlot) -> None:
        """The row of the value that a buffer had before anything was seen to change it."""
        if slot.initial is not None:
            slot.rows.append(self._add_row("buffer", self._state.name_of(slot), slot.initial))

    def _add_row(self, kind: str, name: str, tensor: Tensor) -> int:
        call = self._sites.calls[-1] if self._sites.calls else 0
        return self.holding.append((kind, name, 0, call, 0, (), None), tensor)

    def _add_source(self, tensor: Tensor, frame: FrameType | None, name: str | None) -> None:
        if self._add_unseen_work(tensor, frame):
            return
        name = self.sources.name_of(tensor, frame) or name
        behind = self.host.shared(tensor)
        is_shared = behind is not None and self.alias(behind, len(self._rows))
        row = self._source_rows[id(tensor)] = self._add_row("source", name or "unknown", tensor)
        self.host.comes_in(tensor)
        if behind is not None and is_shared:
            self.host.add_shared(row, behind)
        else:
            self.sources.judge(row, tensor, name, self.doubts)

    def _add_unseen_work(self, tensor: Tensor, frame: FrameType | None) -> bool:
        """Append a boundary op for the work behind a tensor, if the witness saw any."""
        if self.unseen_work is None or not is_torchs_memory(tensor):
            return False
        behind = self.unseen_work.behind(tensor)
        if behind is None:
            return False
        read = tuple([self.meet(tensor, frame) for tensor in behind.read])
        site, call = behind.where
        place = self._sites.enter_boundary(site, UNSEEN)
        row = self.holding.append(("boundary", UNSEEN, place, call, 0, read, None), tensor)
        if not read:  # a constant, of what may have left for the host
            self.host.add_returned(row, [])
        return True

    def _same_storage(self, tensor: Tensor) -> Recorded | None:
        """The last known tensor that covers the same elements, preferably with the same geometry."""
        key = storage_key(tensor)
        candidates = [*self._state.params_on(key), *self.holding.known_on(key)]
        region = region_of(tensor)
        same = [known for known in candidates if region_of(known) == region]
        around = same or [known for known in candidates if last_writers(region, [region_of(known)])[1]]
        return around[-1] if around else None

    def _maker_place(self, tensor: Tensor) -> tuple[int, int]:
        """Where the last call that gave this tensor was made: the line that assigned it, in most code."""
        made = self.holding.maker(tensor)
        return (0, 0) if made is None else (self._rows[made[0]][2], self._rows[made[0]][3])
