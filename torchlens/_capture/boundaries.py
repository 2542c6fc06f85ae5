"""Transforms of `torch.func` as one op each: from the first torch call inside to the transform's return."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from types import CodeType, FrameType
from typing import Any, Final, TypeAlias

from torch import Tensor
from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor
from torch._functorch import apis, eager_transforms, vmap
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

from torchlens._capture.closures import roots_of_user_frames
from torchlens._capture.kinds import Special
from torchlens._capture.origins import find_name
from torchlens._capture.returns import ReturnWatch
from torchlens._capture.tensors import Tensors
from torchlens._capture.writes import Target, out_targets
from torchlens._keys.lookups import variables
from torchlens._unseen import unseen
from torchlens._values.geometry import region_of, storage_key
from torchlens._values.ledger import MetadataWrite, Write
from torchlens._values.plain import tensors_in
from torchlens._values.region import last_writers

_MODULES: Final = (apis, eager_transforms, vmap)
TRANSFORM_FILES: Final = frozenset(str(module.__file__) for module in _MODULES)

Written: TypeAlias = list[tuple[Target, Write | MetadataWrite]]


@dataclass(slots=True)
class Transform:
    """One transform while it runs, and what it read and wrote of the tensors outside."""

    frame: FrameType
    name: str
    inputs: dict[int, Tensor]
    """By id."""
    writes: Written = field(default_factory=Written)
    made: dict[int, Tensor] = field(default_factory=dict[int, Tensor])
    """By id, the tensors that calls inside gave, and others that are none of those outside."""


class Transforms:
    """Follows one transform at a time, the outermost, and tells when it has returned."""

    def __init__(self, tensors: Tensors, returned: Callable[[Transform, Any], None]) -> None:
        self._tensors = tensors
        self._returned = returned
        self._transform: Transform | None = None
        self._watch: ReturnWatch | None = None
        self.unfollowed = 0
        """How many transforms could not be followed to their return."""

    @property
    def running(self) -> bool:
        return self._transform is not None

    def begin(self, frame: FrameType, last: Callable[[FrameType], bool]) -> None:
        """Start at a frame inside a transform; frames for which `last` holds bound the search outwards."""
        outermost = _outermost(frame, last)
        assert outermost is not None, "a torch call arrived at a transform level without a transform's frame"
        name = _names().get(outermost.f_code, outermost.f_code.co_name)
        inputs = {id(t): t for t in tensors_in(_arguments(outermost))}
        self._transform = Transform(outermost, name, inputs)
        self._watch = ReturnWatch(outermost, self._end)
        self.unfollowed += not self._watch.watching
        self._watch.begin()

    def is_over(self, frame: FrameType | None) -> bool:
        """Whether a transform whose return could not be followed has returned, as seen from `frame`."""
        if self._transform is None or self._watch is None or self._watch.watching:
            return False
        while frame is not None and frame is not self._transform.frame:
            frame = frame.f_back
        return frame is None

    def call(
        self,
        func: Callable[..., Any],
        special: Special | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        frame: FrameType,
    ) -> Any:
        """A call inside: what it reads and writes of the tensors outside, the transform does."""
        transform = self._transform
        assert transform is not None
        self.note((args, kwargs), None, frame)
        targets = special.writes(args, kwargs) if special is not None and special.writes else []
        if kwargs.get("out") is not None:
            targets = out_targets(kwargs["out"])
        writes = [written for target in targets if (written := self._before_write(transform, target))]
        transform.writes += writes
        try:
            out = func(*args, **kwargs)
        finally:
            for target, write in writes:
                self._tensors.ledger.end_write(write, target.tensor)
        self.note((), out, frame)
        return out

    def note(self, read: tuple[Any, ...], made: Any, frame: FrameType) -> None:
        """Tensors that something inside read, and those that it made."""
        transform = self._transform
        assert transform is not None
        for tensor in tensors_in(read):
            self._read(transform, tensor, frame)
        for tensor in tensors_in(made):
            if id(tensor) not in transform.inputs:
                transform.made[id(tensor)] = tensor

    def abandon(self) -> None:
        """Stop following, as when the capture ends inside."""
        if self._watch is not None:
            self._watch.end()
        self._watch = self._transform = None

    def _read(self, transform: Transform, tensor: Tensor, frame: FrameType) -> None:
        plain = _unwrapped(tensor)
        if id(plain) in transform.inputs or id(plain) in transform.made:
            return
        known = self._tensors.holding.recorded(plain) is not None
        if known or (plain is tensor and self._is_outside(tensor, frame)):
            self._tensors.meet(plain, frame)
            transform.inputs[id(plain)] = plain
        else:
            transform.made[id(plain)] = plain

    def _is_outside(self, tensor: Tensor, frame: FrameType) -> bool:
        """Whether a tensor that was not met before was closed over, rather than made inside by C++."""
        assert self._transform is not None
        if self._tensors.holds(tensor):
            return True
        return find_name(tensor, roots_of_user_frames(frame, self._transform.frame)) is not None

    def _before_write(self, transform: Transform, target: Target) -> tuple[Target, Write] | None:
        """Note a write into the storage of a tensor outside; None for any other."""
        written = _unwrapped(target.tensor)
        key = storage_key(written)
        outside = [tensor for tensor in transform.inputs.values() if storage_key(tensor) == key]
        if target.metadata or not outside:
            return None
        region = region_of(written)
        around = (tensor for tensor in outside if last_writers(region, [region_of(tensor)])[1])
        shown = written if id(written) in transform.inputs else next(around, written)
        with unseen(), temporarily_clear_interpreter_stack():
            self._tensors.before_write([target])
            write = self._tensors.ledger.before_write(shown, written, None)
        return Target(shown), write

    def _end(self, output: Any) -> None:
        transform = self._transform
        assert transform is not None
        self.abandon()
        self._returned(transform, output)


def _outermost(frame: FrameType | None, last: Callable[[FrameType], bool]) -> FrameType | None:
    """The outermost frame of a transform around `frame`."""
    found: FrameType | None = None
    while frame is not None and not last(frame):
        if frame.f_code.co_filename in TRANSFORM_FILES:
            found = frame
        frame = frame.f_back
    return found


def _unwrapped(tensor: Tensor) -> Tensor:
    """What a tensor of a transform stands for outside it."""
    while is_functorch_wrapped_tensor(tensor):
        tensor = get_unwrapped(tensor)
    return tensor


def _arguments(frame: FrameType) -> list[Any]:
    """The arguments a frame's function was called with, by its own names for them."""
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)  # *args, **kwargs
    values = variables(frame)
    return [values[name] for name in code.co_varnames[:count] if name in values]


@cache
def _names() -> dict[CodeType, str]:
    """The code of each function in torch's transform modules, and of those nested in it, to its name."""
    names: dict[CodeType, str] = {}
    for module in _MODULES:
        for name, function in vars(module).items():
            if isinstance(function, types.FunctionType):
                code = inspect.unwrap(function).__code__
                if code.co_filename == module.__file__:
                    _add_names(code, name.strip("_").removesuffix("_with_argnums"), names)
    return names


def _add_names(code: CodeType, name: str, names: dict[CodeType, str]) -> None:
    names.setdefault(code, name)
    for const in code.co_consts:
        if isinstance(const, CodeType):
            _add_names(const, name, names)
