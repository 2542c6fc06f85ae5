"""Other threads: which were started or ended during a capture, and which tensors their modules gave.

A capture sees its own thread. Work on another one is noticed by two signs that cost the hot path nothing:
the set of Python threads changed, also for a moment only; or a tensor that a module gave on another thread
enters an op.
"""

from __future__ import annotations

import sys
import threading
from threading import Thread, get_ident
from types import FrameType
from typing import Any, Final
from weakref import WeakSet

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from torchlens._capture.doubts import Doubts
from torchlens._unseen import unseen
from torchlens._values.geometry import storage_key
from torchlens._values.plain import tensors_in

_HARMLESS: Final = frozenset([("tqdm._monitor", "TMonitor")])
"""Threads that only keep an eye on something, by the module and name of their class."""
_START_CODE: Final = Thread.start.__code__
_FIRST_PURGE: Final = 1024
_NEAR: Final = 8
"""How many frames `Thread.start` may be below the innermost one while it waits for the new thread."""


class ThreadWatch:
    """What one capture notices of other threads."""

    def __init__(self, rows: list[tuple[Any, ...]], doubts: Doubts) -> None:
        self.owner = get_ident()
        self._rows = rows
        self._doubts = doubts
        self._alive: dict[Thread, int | None] = {}
        self._running: set[int] = set()
        self._started: dict[Thread, int] = {}
        """Thread to the last row before it began."""
        self._elsewhere: set[Thread] = set()
        """Threads that another thread started: none of this forward's doing."""
        self._given: dict[int, StorageWeakRef] = {}
        self._purge_at = _FIRST_PURGE

    def open(self) -> None:
        """Note who is there now. Threads that capture, now or later, are not our concern."""
        self._alive = {thread: thread.ident for thread in threading.enumerate()}
        self._running = set(sys._current_frames())
        me = next((thread for thread, ident in self._alive.items() if ident == self.owner), None)
        _beginnings.watch(self, me)

    def close(self) -> None:
        """Stop watching; say so if the set of threads changed in a way that captures do not explain."""
        _beginnings.unwatch(self)
        self._given.clear()
        last = len(self._rows) - 1
        now = {thread: thread.ident for thread in threading.enumerate()}
        for thread in now.keys() - self._started.keys() - self._elsewhere:
            self.begins(thread, _starter(thread))  # it was started, and had no turn yet
        changed = {**self._started, **dict.fromkeys(self._alive.keys() - now.keys(), last)}
        for thread, at in changed.items():
            if thread not in _beginnings.capturing and not _is_harmless(thread):
                self._doubts.add("owner_thread_tripwire_changed", at)
        told = {*now.values(), *self._running, *(thread.ident for thread in self._elsewhere | changed.keys())}
        raw = set(sys._current_frames()) - told
        if raw and None not in now.values():  # begun without `threading`, and none of it about to begin
            self._doubts.add("owner_thread_tripwire_changed", last, count=len(raw))

    def begins(self, thread: Thread, starter: int | None) -> None:
        """A thread has begun, started by the thread `starter` if that is known."""
        if thread in self._alive:
            return
        if starter in (None, self.owner):
            self._started[thread] = len(self._rows) - 1
        else:
            self._elsewhere.add(thread)

    def module_gave(self, output: Any) -> None:
        """A module returned this on another thread. Its tensors are known by their storages from now on."""
        with unseen():  # that thread may be in a capture of its own
            for tensor in tensors_in(output):
                key = storage_key(tensor)
                if key > 0:
                    self._given[key] = StorageWeakRef(tensor.untyped_storage())
        if len(self._given) > self._purge_at:
            self._given = {key: ref for key, ref in list(self._given.items()) if not ref.expired()}
            self._purge_at = max(_FIRST_PURGE, 2 * len(self._given))

    def gave(self, tensor: Tensor) -> bool:
        """Whether a module on another thread gave the tensor, or one on its storage."""
        return storage_key(tensor) in self._given


def _is_harmless(thread: Thread) -> bool:
    kind = type(thread)
    return (kind.__module__, kind.__qualname__) in _HARMLESS


class _Beginnings:
    """Tells open captures of each thread that begins.

    `threading.setprofile` installs, for threads to come, a function that is called at their first step; ours
    takes itself off right then and leaves whatever profiler the program wants there. It is on while any
    capture is open; the last to close gives back what the first one found.
    """

    def __init__(self) -> None:
        self.capturing: WeakSet[Thread] = WeakSet()
        """Threads that have opened a capture."""
        self._lock = threading.Lock()
        self._watches: list[ThreadWatch] = []
        self._users: Any = None

    def watch(self, watch: ThreadWatch, thread: Thread | None) -> None:
        with self._lock:
            if thread is not None:
                self.capturing.add(thread)
            if not self._watches:
                self._users = threading.getprofile()
                threading.setprofile(self._first_step)
            self._watches.append(watch)

    def unwatch(self, watch: ThreadWatch) -> None:
        with self._lock:
            self._watches.remove(watch)
            if not self._watches:
                if threading.getprofile() == self._first_step:  # unless the program has set another since
                    threading.setprofile(self._users)
                self._users = None

    def _first_step(self, frame: FrameType, event: str, arg: Any) -> None:
        with self._lock:  # the last capture may be ending
            users, watches = self._users, list(self._watches)
        sys.setprofile(users)
        thread = threading.current_thread()
        starter = _starter(thread)
        for watch in watches:
            watch.begins(thread, starter)
        if users is not None:
            users(frame, event, arg)


def _starter(thread: Thread) -> int | None:
    """Which thread is in `thread.start()` now; None if it has gone on already."""
    frames = sys._current_frames()
    frames.pop(get_ident(), None)  # ours is not, and a frame that holds itself waits for the collector
    for ident, frame in frames.items():
        walker: FrameType | None = frame
        for _ in range(_NEAR):
            if walker is None:
                break
            if walker.f_code is _START_CODE and walker.f_locals.get("self") is thread:
                return ident
            walker = walker.f_back
    return None


_beginnings: Final = _Beginnings()
