"""Compiled code runs eagerly during a capture, and keeps its caches.

Torch can only do this for the whole process, and not last-in-first-out; overlapping captures are counted, so
that the last one to end gives back what the first one found. Loading dynamo takes a second, so nothing is
done before it is loaded; a forward may load it, by its first `torch.compile` or `torch.cond`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import FrameType, FunctionType, ModuleType
from typing import Any, Final

import torch

from torchlens._capture.python_calls import torch_wrote

_DYNAMO = "torch._dynamo"
COMPILER_FILE: Final = str(Path(torch.__file__).parent / "_dynamo" / "eval_frame.py")
"""Where the frames lie that stand around compiled code."""
SKIPPED: Final = (
    f"Compiled code was called, which torch {torch.__version__} cannot run eagerly (2.6 can); what ran in it "
    "may not have been seen."
)
_HOP_FRAMES = 12
"""How many frames at most lie between a control-flow operator's call and torch's own compiling of it."""


def can_run_eagerly() -> bool:
    """Whether this torch can run compiled code eagerly (2.6 and later)."""
    return hasattr(torch.compiler, "set_stance")


def is_compiled_module(module: object) -> bool:
    """Whether a module is what `torch.compile` put around another; told without loading dynamo."""
    kind = type(module)
    return kind.__name__ == "OptimizedModule" and kind.__module__.startswith(_DYNAMO)


class _EagerStance:
    """How many captures want compiled code to run eagerly now."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._as_usual = 0
        self._stance: Any = None
        self._import = _DynamoImport(self.loaded)

    def begin(self) -> None:
        with self._lock:
            self._count += 1
            if _is_loaded():
                self._set()
            elif self._count == 1:
                sys.meta_path.insert(0, self._import)

    def end(self) -> None:
        with self._lock:
            self._count -= 1
            if self._count:
                return
            if self._import in sys.meta_path:
                sys.meta_path.remove(self._import)
            if self._stance is not None:
                self._stance.__exit__(None, None, None)
                self._stance = None

    def loaded(self) -> None:
        """Dynamo was loaded while captures were open."""
        with self._lock:
            if self._count:
                self._set()

    @contextmanager
    def as_usual(self) -> Generator[None]:
        """Run the body with compiled code compiled, as without a capture."""
        with self._lock:
            self._as_usual += 1
            self._stance.__exit__(None, None, None)
        try:
            yield
        finally:
            with self._lock:
                self._as_usual -= 1
                if self._as_usual == 0 and self._stance is not None:
                    self._stance.__enter__()

    def _set(self) -> None:
        if self._stance is None and can_run_eagerly():
            self._stance = torch.compiler.set_stance("force_eager")

    @property
    def is_set(self) -> bool:
        return self._stance is not None


class _DynamoImport(MetaPathFinder, Loader):
    """Tells when dynamo has been imported, and leaves no trace on it."""

    def __init__(self, imported: Callable[[], None]) -> None:
        self._imported = imported
        self._loader: Loader | None = None

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _DYNAMO:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None:
            self._loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        assert self._loader is not None
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert self._loader is not None and module.__spec__ is not None
        module.__loader__ = module.__spec__.loader = self._loader
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        self._loader.exec_module(module)
        self._imported()


_eager = _EagerStance()


@contextmanager
def compiled_code_eager() -> Generator[None]:
    """Run the body with `torch.compile`d code running as plain Python."""
    _eager.begin()
    try:
        yield
    finally:
        _eager.end()


@contextmanager
def compiled_as_usual() -> Generator[None]:
    """Within `compiled_code_eager`, run the body with compiled code compiled."""
    with _eager.as_usual():
        yield


def torchs_own_compiling(frame: FrameType | None) -> Callable[[], Any] | None:
    """The call of the control-flow operator that `frame` makes, compiled, if torch skips that for our sake.

    Outside compiled code torch compiles such an operator (`torch.cond`) by itself before it runs it, which
    finds out what its functions close over; without that they cannot have gradients.
    """
    if not _eager.is_set:
        return None
    for _ in range(_HOP_FRAMES):
        if frame is None:
            return None
        if frame.f_code.co_filename == COMPILER_FILE and "fn" in frame.f_locals:
            variables = frame.f_locals
            func = variables["fn"]
            if type(func) is not FunctionType or not torch_wrote(func):
                return None
            return partial(variables["self"](func), *variables["args"], **variables["kwargs"])
        frame = frame.f_back
    return None


def _is_loaded() -> bool:
    module = sys.modules.get(_DYNAMO)
    # another thread may be importing it: what is asked of it now would wait for that thread
    return module is not None and not vars(module.__spec__).get("_initializing", False)
