"""Frames to a place in the code: which chain of Python frames made a torch call, and in which module call.

The walk goes outwards from the caller. Each (place so far, code, instruction) is folded into an integer
through a dictionary, so a known chain costs one lookup a frame; what the integers stand for is resolved to
files, lines and layers after the run. This file imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FrameType

from torchlens._keys.lookups import variables
from torchlens._records import BoundaryPlace, EnteredPlace, FramePlace, HookedPlace, Place

_UNSET = object()


class CallSites:
    """Folds call chains into integers and knows which module call each chain ends in.

    `module_code` is the code of the frame that calls a module's `forward` and hooks, `forward_offset` the
    instruction in it that calls `forward`; `passing_codes` are the frames between it and the module's caller.
    """

    def __init__(
        self,
        module_code: CodeType,
        forward_offset: int,
        passing_codes: tuple[CodeType, ...],
        module_index: Callable[[object], int],
    ) -> None:
        self.places: list[Place | None] = [None]
        self.handler_code: CodeType | None = None
        self.transform_files: frozenset[str] = frozenset()
        self.compiler_file: str | None = None
        """Where the frames around compiled code lie, if that cannot be made to run eagerly."""
        self.compiled_code_called: Callable[[], object] | None = None
        self.in_transform: set[int] = set()
        """Places whose chain runs through a transform of `torch.func`."""
        self.entries: list[tuple[int, int, Callable[..., object]]] = []
        """The torch functions being entered, innermost last: chain and module call of their caller."""
        self.frames: list[FrameType] = []
        """One frame of `module_code` for each running module call, innermost last; `calls` goes with it."""
        self.calls: list[int] = []
        self.forward_called_directly: Callable[[FrameType], object] | None = None
        """Told of each new frame that runs a `forward` without `__call__` around it."""
        self._nodes: dict[tuple[object, ...], int] = {}
        self._module_code = module_code
        self._forward_offset = forward_offset
        self._passing_codes = passing_codes
        self._module_index = module_index
        self._opening_frames: dict[int, FrameType] = {}

    def open(self, frame: FrameType | None) -> None:
        """Note the frames running now: chains outside any module end at the innermost of them."""
        while frame is not None:
            self._opening_frames[id(frame)] = frame
            frame = frame.f_back

    def close(self) -> None:
        """Let go of every frame."""
        self._opening_frames.clear()
        self.frames.clear()
        self.calls.clear()
        self.entries.clear()
        self.forward_called_directly = self.compiled_code_called = None

    @property
    def opener(self) -> FrameType | None:
        """The innermost frame that is not the library's own among those running at the opening."""
        return next((f for f in self._opening_frames.values() if not _is_own(f)), None)

    def locate(self, frame: FrameType | None) -> tuple[int, int]:
        """The place of the call that `frame` makes, and the module call it runs in.

        The loop is the hot path: it holds what every call needs, and hands anything rare to `_beyond`.
        """
        frames = self.frames
        if not frames and not self.entries:
            return self._to_opening(0, frame, frame)
        place = 0
        get = self._nodes.get
        innermost = frames[-1] if frames else None
        handler_code = self.handler_code
        start = frame
        while frame is not None:
            if frame is innermost:
                if frame.f_lasti == self._forward_offset:
                    return place, self.calls[-1]
                return self._beyond(place, frame, start)
            code = frame.f_code
            if code is handler_code:
                return self._from_entry(place)
            if code is self._module_code:
                return self._beyond(place, frame, start)
            key = (place, id(code), frame.f_lasti)
            place = get(key) or self._add_frame(key, frame, start)
            frame = frame.f_back
        self._drop_above(-1)
        return self._to_opening(0, start, start)

    def is_boundary(self, frame: FrameType) -> bool:
        """Whether chains from further in end at this frame."""
        return frame.f_code is self._module_code or id(frame) in self._opening_frames

    def is_in_transform(self, frame: FrameType | None) -> bool:
        """Whether a transform of `torch.func` lies between a frame and where its chain ends."""
        while frame is not None and not self.is_boundary(frame):
            if frame.f_code.co_filename in self.transform_files:
                return True
            frame = frame.f_back
        return False

    def outside(self, frame: FrameType) -> FrameType | None:
        """The frame that called the module whose call runs in `frame`."""
        back = frame.f_back
        while back is not None and any(back.f_code is code for code in self._passing_codes):
            back = back.f_back
        return back

    def caller_of(self, frame: FrameType | None) -> int:
        """The module call in which `frame` runs, without folding its chain."""
        if not self.frames:
            return 0
        innermost, walker = self.frames[-1], frame
        while walker is not None and walker is not innermost:
            walker = walker.f_back
        if walker is not None and walker.f_lasti == self._forward_offset:
            return self.calls[-1]
        crossed_hook = False
        while frame is not None and id(frame) not in self._opening_frames:
            if frame.f_code is self._module_code:
                if frame.f_lasti == self._forward_offset:
                    return self._running_call(frame, crossed_hook)
                crossed_hook = True
            frame = frame.f_back
        if not crossed_hook:
            self._drop_above(-1)
        return 0

    def enter_boundary(self, site: int, func: object) -> int:
        """The place of a boundary op called from the chain `site`."""
        return self._add((0, "boundary", site, id(func)), BoundaryPlace(0, site, func))

    def _from_entry(self, place: int) -> tuple[int, int]:
        outer, call, func = self.entries[-1]
        key = (place, ~outer, id(func))
        return self._nodes.get(key) or self._add(key, EnteredPlace(place, outer, func)), call

    def _beyond(self, place: int, frame: FrameType | None, start: FrameType | None) -> tuple[int, int]:
        """Go on from a frame of `module_code` that is not the innermost module's forward.

        Either the frames further in are a hook's, which belongs to its module's caller, or modules above
        this one were left by an exception that skips forward hooks.
        """
        if frame is not None and id(frame) in self._opening_frames:  # walked past the opening: none is left
            self._drop_above(-1)
            return self._to_opening(0, start, start)
        crossed_hook = False
        while frame is not None and id(frame) not in self._opening_frames:
            code = frame.f_code
            if code is self.handler_code:
                return self._from_entry(place)
            if code is not self._module_code:
                key = (place, id(code), frame.f_lasti)
                place = self._nodes.get(key) or self._add_frame(key, frame, start)
            elif frame.f_lasti == self._forward_offset:
                return place, self._running_call(frame, crossed_hook)
            else:
                crossed_hook = True
                module = self._module_index(frame.f_locals["self"])
                hooked = HookedPlace(place, module, frame.f_lasti)
                place = self._add((place, "hook", module, frame.f_lasti), hooked)
                frame = self.outside(frame)
                continue
            frame = frame.f_back
        return self._to_opening(place, frame, start)

    def _running_call(self, frame: FrameType, crossed_hook: bool) -> int:
        for level in range(len(self.frames) - 1, -1, -1):
            if self.frames[level] is frame:
                call = self.calls[level]
                if not crossed_hook:
                    self._drop_above(level)
                return call
        return 0

    def _drop_above(self, level: int) -> None:
        del self.frames[level + 1 :], self.calls[level + 1 :]

    def _to_opening(self, place: int, frame: FrameType | None, start: FrameType | None) -> tuple[int, int]:
        """Fold up to and with the first frame that was already running when the capture was opened."""
        opening = self._opening_frames
        get = self._nodes.get
        while frame is not None:
            code = frame.f_code
            if id(frame) in opening:
                if not _is_own(frame):
                    key = (place, id(code), frame.f_lasti)
                    place = get(key) or self._add_frame(key, frame, start)
                break
            if code is self._module_code:
                return self._beyond(place, frame, start)
            key = (place, id(code), frame.f_lasti)
            place = get(key) or self._add_frame(key, frame, start)
            frame = frame.f_back
        return place, 0

    def _add_frame(self, key: tuple[object, ...], frame: FrameType, start: FrameType | None) -> int:
        code = frame.f_code
        inner = key[0]
        assert isinstance(inner, int)
        node = self._add(key, FramePlace(inner, code, frame.f_lasti, _is_recursive(frame, start)))
        if inner in self.in_transform or code.co_filename in self.transform_files:
            self.in_transform.add(node)
        if code.co_filename == self.compiler_file and self.compiled_code_called is not None:
            self.compiled_code_called()
        if code.co_name == "forward" and self.forward_called_directly is not None:
            back = frame.f_back
            if back is not None and back.f_code is not self._module_code:
                self.forward_called_directly(frame)
        return node

    def _add(self, key: tuple[object, ...], place: Place) -> int:
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = len(self.places)
            self.places.append(place)
        return node


def _is_own(frame: FrameType) -> bool:
    name = frame.f_globals.get("__name__", "")
    return name == "torchlens" or name.startswith("torchlens.")


def _is_recursive(frame: FrameType, start: FrameType | None) -> bool:
    """Whether a frame further in runs the same function: same code and the same free variables."""
    inner = start
    while inner is not None and inner is not frame:
        if inner.f_code is frame.f_code and _same_free_variables(inner, frame):
            return True
        inner = inner.f_back
    return False


def _same_free_variables(one: FrameType, other: FrameType) -> bool:
    names = one.f_code.co_freevars
    if not names:
        return True
    found, wanted = variables(one), variables(other)
    return all(found.get(name, _UNSET) is wanted.get(name, _UNSET) for name in names)
