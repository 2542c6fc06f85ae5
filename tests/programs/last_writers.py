"""A slow reference: for each element of each live tensor, the call that wrote it last.

It keeps one entry per element and tensor, looks at every live tensor after every write, and shares
nothing with the library.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

Writer: TypeAlias = "int | str"
"""The number of a call, or the name of a tensor that was there before."""

CHANGE_SHAPE_ONLY = {"t_", "transpose_", "unsqueeze_", "squeeze_", "swapaxes_"}


@dataclass
class Call:
    """One output of one call, as the reference saw it."""

    name: str
    slot: int
    parents: frozenset[Writer]
    args: list[Tensor]
    """Copies of the tensor arguments, made before the call."""
    out: Tensor
    """A copy of the output, made right after the call."""


@dataclass
class Seen:
    """A tensor object and, by address of the element, who wrote that element last."""

    tensor: weakref.ref[Tensor]
    writers: dict[int, Writer]


def tensors_in(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors_in(part)
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))


def element_addresses(tensor: Tensor) -> list[int]:
    ranges = [range(0, size * stride, stride) if stride else [0] * size for size, stride in geometry(tensor)]
    return [tensor.data_ptr() + tensor.itemsize * sum(steps) for steps in itertools.product(*ranges)]


def geometry(tensor: Tensor) -> list[tuple[int, int]]:
    return list(zip(tensor.shape, tensor.stride(), strict=True))


def copied(tensor: Tensor) -> Tensor:
    return tensor.detach().clone()


def shares_storage(one: Tensor, other: Tensor) -> bool:
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


class LastWriters(TorchFunctionMode):
    """Watches one run. `buffer` gives the tensor now held as the buffer `h`.

    Whatever writes into the buffer's storage, or assigns another tensor, makes a new version: `h1`, `h2` and
    so on after the starting `h`. For readers of the buffer object it is the last writer of all elements;
    other views of the storage see who wrote their elements.
    """

    def __init__(self, buffer: Callable[[], Tensor | None]) -> None:
        super().__init__()
        self.buffer = buffer
        self.calls: list[Call] = []
        self.seen: dict[int, Seen] = {}
        self.held = buffer()
        self.versions: list[set[Writer]] = []
        """The writers that each new version of the buffer was made from."""

    def start(self, tensor: Tensor, name: str | None) -> None:
        """Take in a tensor that was there before; without a name it counts as nobody's work."""
        writers = {} if name is None else dict.fromkeys(element_addresses(tensor), name)
        self.seen[id(tensor)] = Seen(weakref.ref(tensor), writers)

    def writers_of(self, tensor: Tensor, addresses: list[int] | None = None) -> set[Writer]:
        seen = self.seen.get(id(tensor))
        assert seen is not None and seen.tensor() is tensor, "a tensor of unknown origin"
        wanted = seen.writers if addresses is None else addresses
        return {seen.writers[address] for address in wanted if address in seen.writers}

    def make(self, tensor: Tensor, call: int) -> None:
        self.seen[id(tensor)] = Seen(weakref.ref(tensor), dict.fromkeys(element_addresses(tensor), call))

    def write(self, target: Tensor, call: int) -> None:
        written = set(element_addresses(target))
        for seen in self.seen.values():
            if seen.tensor() is not None:
                seen.writers.update(dict.fromkeys(written & seen.writers.keys(), call))
        buffer = self.buffer()
        if buffer is not None and shares_storage(target, buffer):
            self.make_version(buffer)

    def make_version(self, buffer: Tensor) -> None:
        self.versions.append(self.writers_of(buffer))
        seen = self.seen[id(buffer)]
        seen.writers = dict.fromkeys(seen.writers, f"h{len(self.versions)}")

    def see_assignment(self) -> None:
        buffer = self.buffer()
        if buffer is not self.held and buffer is not None:
            self.held = buffer
            self.make_version(buffer)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        self.see_assignment()
        given = list(tensors_in([args, kwargs]))
        before = [(copied(t), t._version, self.writers_of(t)) for t in given]
        result = func(*args, **kwargs)
        moved = [t for t, (_, version, _) in zip(given, before, strict=True) if t._version != version]
        name = function_name(func)
        target = None if name in CHANGE_SHAPE_ONLY else written_tensor(name, moved, kwargs)
        outs = [args[0]] if name == "__setitem__" else list(tensors_in(result))
        for slot, out in enumerate(outs):
            parents = frozenset(self.parents(out, given, [writers for *_, writers in before], target))
            self.calls.append(Call(name, slot, parents, [copy for copy, *_ in before], copied(out)))
            self.record(out, target, reshaped=name in CHANGE_SHAPE_ONLY)
        return result

    def parents(
        self, out: Tensor, given: list[Tensor], writers: list[set[Writer]], target: Tensor | None
    ) -> set[Writer]:
        """Last writers of the elements the arguments cover; a view covers only what it shows."""
        found: set[Writer] = set()
        for tensor, all_writers in zip(given, writers, strict=True):
            is_view = target is None and out is not tensor and shares_storage(out, tensor)
            found |= self.writers_of(tensor, element_addresses(out)) if is_view else all_writers
        return found

    def record(self, out: Tensor, target: Tensor | None, reshaped: bool) -> None:
        number = len(self.calls) - 1
        self.make(out, number)
        if target is not None:
            self.write(target, number)
        elif reshaped and out is self.buffer():
            self.make_version(out)


def function_name(func: Any) -> str:
    if func.__name__ == "__get__":
        return func.__self__.__name__
    return func.__name__


def written_tensor(name: str, moved: list[Tensor], kwargs: dict[str, Any]) -> Tensor | None:
    """The tensor a call was asked to write: version counters move for all views of it."""
    if not moved:
        return None
    return kwargs["out"] if isinstance(kwargs.get("out"), Tensor) else moved[0]


def last_writers(run: Callable[..., Any], known: dict[str, Tensor], *inputs: Any) -> Any:
    """What the run returns, the mode that watched it, and the writers of each tensor it returns.

    `known` names the tensors there before. Parameters of a module count as written by nobody.
    """
    is_module = isinstance(run, torch.nn.Module)
    mode = LastWriters(lambda: run.h if is_module else None)
    for tensor in run.parameters() if is_module else ():
        mode.start(tensor, None)
    for name, tensor in (known | {"h": run.h} if is_module else known).items():
        mode.start(tensor, name)
    with mode:
        result = run(*inputs)
    mode.see_assignment()
    return result, mode, [mode.writers_of(t) for t in tensors_in(result)]


def equal_bits(one: Tensor, other: Tensor) -> bool:
    """Same shape, type and bytes; NaNs equal themselves."""
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    return torch.equal(
        one.detach().nan_to_num(nan=12.25), other.detach().nan_to_num(nan=12.25)
    ) and torch.equal(one.isnan(), other.isnan())
