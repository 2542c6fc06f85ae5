"""The memory that snapshots wait in: so much and no more."""

from __future__ import annotations

import mmap
from threading import Condition

import torch
from torch import Tensor


class Buffers:
    """Hands out buffers of bytes; whoever asks for more than `limit` in all waits until some come back.

    One larger than the limit is given when no other is out. Buffers of the usual size are used again: new
    memory costs more than the copy into it.
    """

    def __init__(self, usual: int, limit: int) -> None:
        self._usual = usual
        self._limit = limit
        self._out = 0
        self._free: list[Tensor] = []
        self._shut = False
        self._changed = Condition()

    def take(self, nbytes: int) -> Tensor | None:
        """A buffer of at least so many bytes, as soon as there is one; None once they are shut."""
        size = max(nbytes, self._usual)
        with self._changed:
            while not self._shut and self._out and self._out + size > self._limit:
                self._changed.wait()
            if self._shut:
                return None
            self._out += size
            if size == self._usual and self._free:
                return self._free.pop()
            self._free.clear()  # their memory is part of the limit
        try:
            return _memory(size)
        except BaseException:
            self._came_back(size)
            raise

    def give_back(self, buffer: Tensor) -> None:
        """Take back a buffer that nobody reads or writes any more."""
        with self._changed:
            if buffer.nbytes == self._usual and not self._shut:
                self._free.append(buffer)
        self._came_back(buffer.nbytes)

    def _came_back(self, size: int) -> None:
        with self._changed:
            self._out -= size
            self._changed.notify_all()

    def shut(self) -> None:
        """Give no more out, and let nobody wait."""
        with self._changed:
            self._shut = True
            self._free.clear()
            self._changed.notify_all()


def _memory(nbytes: int) -> Tensor:
    """Bytes of their own, straight from the system.

    From the heap they would lie between the model's tensors, and the heap would grow by what it cannot join.
    """
    return torch.frombuffer(mmap.mmap(-1, nbytes), dtype=torch.uint8)
