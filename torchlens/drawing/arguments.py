"""What the arguments of a torch function are called."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from torchlens._trace.op import Op
from torchlens.errors import UnreadableError


def argument_name(op: Op, position: str) -> str:
    """The name of the argument at a position: `other` for `"1"` of `add`, `tensors[2]` for `"0.2"` of `cat`.

    Names are those of torch's schema of the operation, or of the function's own signature. Where neither has
    one, as for operators that a loaded trace knows by name only, it is the position itself.
    """
    head, *inner = position.split(".")
    if head.isdigit():
        names = _schema_names(op.operation, int(head)) or _signature_names(op)
        head = names[int(head)] if int(head) < len(names) else head
    return head + "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in inner)


@cache
def _schema_names(operation: str, position: int) -> Sequence[str]:
    """The names of the shortest overload that takes a tensor, or several, at a position."""
    packet: Any = getattr(torch.ops.aten, operation) if hasattr(torch.ops.aten, operation) else None
    if not hasattr(packet, "overloads"):
        return ()
    found: list[Sequence[str]] = []
    for overload in packet.overloads():
        schema: torch.FunctionSchema = getattr(packet, overload)._schema
        if len(schema.arguments) > position and "Tensor" in str(schema.arguments[position].type):
            found.append(tuple(argument.name for argument in schema.arguments))
    return min(found, key=len, default=())


def _signature_names(op: Op) -> Sequence[str]:
    try:
        func = op.func
        return () if func is None else tuple(inspect.signature(func).parameters)
    except (UnreadableError, TypeError, ValueError):
        return ()
