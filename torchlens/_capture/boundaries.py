"""Transforms of `torch.func` as one op each: from the first torch call inside to the transform's return."""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, Final

from torch import Tensor
from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor
from torch._functorch import apis, eager_transforms, vmap

from torchlens._values.plain import tensors_in

_MODULES: Final = (apis, eager_transforms, vmap)
TRANSFORM_FILES: Final = frozenset(str(module.__file__) for module in _MODULES)


class Transforms:
    """Follows one transform at a time, the outermost, and tells when it has returned."""

    def __init__(self, returned: Callable[[str, FrameType | None, list[Tensor], Any], None]) -> None:
        self._returned = returned
        self._frame: FrameType | None = None
        self._name = ""
        self._inputs: dict[int, Tensor] = {}
        self._profiler: Any = None
        self._followed = True
        self.unfollowed = 0
        """How many transforms could not be followed to their return."""

    @property
    def running(self) -> bool:
        return self._frame is not None

    def begin(self, frame: FrameType, last: Callable[[FrameType], bool]) -> None:
        """Start at a frame inside a transform; frames for which `last` holds bound the search outwards."""
        outermost: FrameType | None = None
        walker: FrameType | None = frame
        while walker is not None and not last(walker):
            if walker.f_code.co_filename in TRANSFORM_FILES:
                outermost = walker
            walker = walker.f_back
        assert outermost is not None, "a torch call arrived at a transform level without a transform's frame"
        self._frame = outermost
        self._name = _names().get(outermost.f_code, outermost.f_code.co_name)
        self._inputs = {id(t): t for t in tensors_in(_arguments(outermost))}
        self._profiler = sys.getprofile()
        self._followed = self._profiler is None or callable(self._profiler)
        if self._followed:
            sys.setprofile(self._profile)
        else:  # a profiler written in C can be neither called nor put back
            self.unfollowed += 1

    def is_over(self, frame: FrameType | None) -> bool:
        """Whether a transform whose return could not be followed has returned, as seen from `frame`."""
        if self._followed or self._frame is None:
            return False
        while frame is not None and frame is not self._frame:
            frame = frame.f_back
        return frame is None

    def note(self, args: tuple[Any, ...], known: set[int]) -> None:
        """Of a call inside, take the tensors that were known outside: the transform reads them too."""
        for tensor in tensors_in(args):
            while is_functorch_wrapped_tensor(tensor):
                tensor = get_unwrapped(tensor)
            if id(tensor) in known:
                self._inputs.setdefault(id(tensor), tensor)

    def abandon(self) -> None:
        """Stop following, as when the capture ends inside."""
        if self._frame is not None:
            if self._followed:
                sys.setprofile(self._profiler)
            self._frame = None
            self._inputs = {}

    def _profile(self, frame: FrameType, event: str, arg: Any) -> None:
        if self._profiler is not None:
            self._profiler(frame, event, arg)
        if event == "return" and frame is self._frame:
            name, inputs = self._name, list(self._inputs.values())
            self.abandon()
            self._returned(name, frame.f_back, inputs, arg)


def _arguments(frame: FrameType) -> list[Any]:
    """The arguments a frame's function was called with, by its own names for them."""
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)  # *args, **kwargs
    values = frame.f_locals
    return [values[name] for name in code.co_varnames[:count] if name in values]


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
