"""Everything that a trace answers, as plain data, so that two traces can be held against each other."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

import torchlens as tl
from torchlens._records import Opaque
from torchlens._trace.layer import Layer
from torchlens._trace.module import Module, ModuleCall
from torchlens._trace.op import Op
from torchlens._trace.reference import TensorRef
from torchlens._trace.state import Buffer, Param
from torchlens._trace.view import View
from torchlens.errors import UnreadableError
from torchlens.validation.comparison import difference

KINDS: tuple[type[View], ...] = (Op, Layer, Module, ModuleCall, Param, Buffer)
_OF_TRACE = "status error provenance notes options copied_bytes output halted_at inputs outputs".split()
_LIVE = "gradient_edge"
"""What only the trace in hand has."""


def properties(kind: type[View]) -> list[str]:
    return [name for name, held in vars(kind).items() if isinstance(held, property) and name[0] != "_"]


def answers(trace: Any, *, printed: bool) -> Iterator[tuple[str, Any]]:
    """(question, answer) of every property of the trace and of all in it; and what they print, if asked."""
    for name in _OF_TRACE:
        yield name, asked(trace, name)
    for things in (trace.ops, trace.layers, trace.modules, trace.module_calls, trace.params, trace.buffers):
        for thing in things:
            for name in properties(type(thing)):
                if name != _LIVE:
                    yield f"{thing.title}.{name}", asked(thing, name)
            if printed:
                yield f"str({thing.title})", str(thing)
            yield f"repr({thing.title})", repr(thing)
    graph = trace.graph
    yield "nodes", dict(graph.nodes(data=True))
    yield "edges", sorted(graph.edges(data=True))
    yield "summary", str(trace.summary())


def asked(thing: Any, name: str) -> Any:
    """The answer as plain data; of one that can't be given, the kind of error."""
    try:
        return as_data(getattr(thing, name))
    except UnreadableError as error:
        return type(error).__name__


def as_data(value: Any) -> Any:
    if isinstance(value, Tensor):
        return Bits(value)
    if isinstance(value, TensorRef):
        return value.label, value.position, value.shape, value.dtype, asked(value, "out")
    if isinstance(value, View):
        return f"<{type(value).__name__} {value.title}>"
    if isinstance(value, Opaque):
        return value.type_name, value.text
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [(f.name, as_data(getattr(value, f.name))) for f in dataclasses.fields(value)]
        items = [(key, as_data(item)) for key, item in value.items()] if isinstance(value, dict) else []
        return type(value).__name__, fields, items
    if isinstance(value, dict):
        return type(value).__name__, [(as_data(key), as_data(item)) for key, item in value.items()]
    if isinstance(value, slice):
        return "slice", as_data((value.start, value.stop, value.step))
    if isinstance(value, (tuple, list)) and type(value).__name__ != "Size":
        named = getattr(value, "_fields", None)
        return type(value).__name__, named, [as_data(item) for item in value]
    if hasattr(value, "__iter__") and not isinstance(value, (str, bytes, torch.Size, frozenset)):
        return [as_data(item) for item in value]
    return Repeated(value)


class Repeated:
    """A value that equals itself, NaN too."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Repeated) or type(self.value) is not type(other.value):
            return False
        return self.value == other.value or repr(self.value) == repr(other.value)

    def __repr__(self) -> str:
        return repr(self.value)


class Bits:
    """A tensor, equal to one of the same elements to the bit, shape, strides and dtype."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Bits):
            return False
        one, two = self.tensor.detach(), other.tensor.detach()
        if one.layout is not torch.strided or one.is_nested or one.is_quantized:
            return difference(one, two) is None
        if (one.dtype, one.shape, one.stride()) != (two.dtype, two.shape, two.stride()):
            return False
        if one.is_meta or two.is_meta:
            return one.is_meta and two.is_meta
        if not all(one.stride()):  # an expanded one may be larger than any memory
            shown = tuple(slice(None) if step else slice(0, 1) for step in one.stride())
            one, two = one[shown], two[shown]
        flat = [
            t.resolve_conj().resolve_neg().cpu().clone(memory_format=torch.contiguous_format)
            for t in (one, two)
        ]
        return torch.equal(*(t.reshape(-1).view(torch.uint8) if t.numel() else t for t in flat))

    def __repr__(self) -> str:
        return f"{self.tensor}"


def assert_same_answers(
    loaded: Any,
    trace: Any,
    *,
    printed: bool = True,
    without: Callable[[str, Any, Any], bool] | None = None,
) -> int:
    """Compare two traces question by question; gives how many there were.

    `without` says of (question, found, expected) whether the difference is as it should be.
    """
    count = 0
    for (question, found), (expected_question, expected) in zip(
        answers(loaded, printed=printed), answers(trace, printed=printed), strict=True
    ):
        assert question == expected_question
        if found != expected and not (without and without(question, found, expected)):
            raise AssertionError(f"{question}\n  live:   {expected!r}\n  loaded: {found!r}")
        count += 1
    return count


def round_trip(trace: Any, path: Any, **options: Any) -> Any:
    tl.save(trace, path, **options)
    return tl.load(path)
