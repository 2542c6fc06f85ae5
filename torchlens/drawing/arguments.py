"""What the arguments of a torch function are called."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from functools import cache
from types import MethodDescriptorType
from typing import Any, TypeAlias, cast

import torch

from torchlens._trace.op import Op
from torchlens._values.lineage import positions
from torchlens.errors import UnreadableError

Given: TypeAlias = tuple[tuple[int, bool], ...]
"""The places of a call's arguments that hold tensors, each with whether they stand in a list there."""


def argument_name(op: Op, position: str) -> str:
    """The name of the argument at a position: `other` for `"1"` of `add`, `tensors[2]` for `"0.2"` of `cat`.

    Names are those of torch's schema of the operation, or of the function's own signature. Where neither has
    one, as for operators that a loaded trace knows by name only, it is the position itself.
    """
    head, *inner = position.split(".")
    if head.isdigit():
        names = _names(op)
        head = names[int(head)] if int(head) < len(names) else head
    return head + "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in inner)


def _names(op: Op) -> Sequence[str]:
    """The names of the arguments in order; fewer than there are, or none, where they are not known."""
    try:
        func = op.func
    except UnreadableError:
        return ()  # an operator of somebody else's, which may have the name of one of torch's
    if op.func_name.startswith("__r") and op.func_name != f"__{op.operation}__":
        return "self", "other"  # `2 ** x` calls `x.__rpow__(2)`: x is the exponent
    names = _schema_names(_packet(func, op.operation), _given(op)) or _signature_names(func)
    if isinstance(func, MethodDescriptorType) and "self" in names:
        return "self", *(name for name in names if name != "self")  # `x.where(condition, y)`
    return names


def _given(op: Op) -> Given:
    rows = op._reader.rows
    heads = (position.partition(".") for position, _ in positions(rows.args[op._row], rows.kwargs[op._row]))
    return tuple(dict.fromkeys((int(head), bool(dot)) for head, dot, _ in heads if head.isdigit()))


def _packet(func: object, operation: str) -> Any:
    """The operator with its overloads; None for a function that is none."""
    if isinstance(func, torch._ops.OpOverload):
        func = func.overloadpacket
    if isinstance(func, torch._ops.OpOverloadPacket):
        return cast("Any", func)
    aten: Any = torch.ops.aten
    found = (getattr(aten, name) for name in (operation, f"_{operation}") if hasattr(aten, name))
    return next((packet for packet in found if hasattr(packet, "overloads")), None)


@cache
def _schema_names(packet: Any, given: Given) -> Sequence[str]:
    """The names of the shortest overload that takes tensors where they are given."""
    return min(_fitting(packet, given), key=len, default=()) if packet is not None else ()


def _fitting(packet: Any, given: Given) -> Iterator[Sequence[str]]:
    for overload in packet.overloads():
        schema: torch.FunctionSchema = getattr(packet, overload)._schema
        types = [str(argument.type) for argument in schema.arguments]
        if all(
            at < len(types) and "Tensor" in types[at] and ("List[" in types[at]) is listed
            for at, listed in given
        ):
            yield tuple(argument.name for argument in schema.arguments)


def _signature_names(func: Any) -> Sequence[str]:
    try:
        return () if func is None else tuple(inspect.signature(func).parameters)
    except (TypeError, ValueError):
        return ()
