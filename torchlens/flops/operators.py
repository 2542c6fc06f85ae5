"""Torch's operators: what a function is called among them, and what their schemas say."""

from __future__ import annotations

from types import (
    BuiltinFunctionType,
    FunctionType,
    MethodDescriptorType,
    MethodWrapperType,
    WrapperDescriptorType,
)
from typing import Any, Final, TypeAlias, cast

import torch
from torch._C import DispatchKey, TensorBase
from torch._ops import OpOverload, OpOverloadPacket

Operator: TypeAlias = "OpOverload[..., Any]"

_PYTHON_MODULES: Final = frozenset({"torch.functional", "torch.nn.functional", "torch._tensor"})
"""Where torch writes functions in Python that only compute; others may touch files, processes, generators."""


def qualified_name(func: Any) -> tuple[str, str] | None:
    """Namespace and name of a function; the namespace is `torch` for one that torch writes in Python.

    None for what is no function of torch's.
    """
    if isinstance(func, OpOverload):
        return operator_name(cast(Operator, func))
    if isinstance(func, OpOverloadPacket):
        return func.__module__.rpartition(".")[2], func.__name__
    if isinstance(func, MethodWrapperType):
        return ("attribute", func.__name__) if func.__name__ in ("__get__", "__set__") else None
    if isinstance(func, (MethodDescriptorType, WrapperDescriptorType)):
        return ("aten", func.__name__) if issubclass(func.__objclass__, TensorBase) else None
    if isinstance(func, BuiltinFunctionType):  # some of torch's name no module
        return ("aten", func.__name__) if (func.__module__ or "torch").partition(".")[0] == "torch" else None
    if isinstance(func, FunctionType) and func.__module__ in _PYTHON_MODULES:
        return "torch", func.__name__
    return None


def operator_name(operator: Operator) -> tuple[str, str]:
    """Namespace and name: `("aten", "add")` for `aten::add.Tensor`."""
    namespace, _, name = operator.name().partition("::")
    return namespace, name.partition(".")[0]


def overloads(namespace: str, name: str) -> list[Operator]:
    """Every overload of `namespace::name`; none if there is no such operator."""
    packet: Any = getattr(getattr(torch.ops, namespace), name, None)
    if not isinstance(packet, OpOverloadPacket):
        return []
    return [getattr(packet, overload) for overload in packet.overloads()]  # pyright: ignore[reportUnknownArgumentType]  # generic


def is_view(operator: Any) -> bool:
    """Whether it returns its argument's storage without having written it."""
    aliases = [result.alias_info for result in operator._schema.returns]
    return any(alias is not None and not alias.is_write for alias in aliases)


def is_composite(operator: Any) -> bool:
    """Whether it only calls other operators, so that these are dispatched instead of it."""
    try:
        return operator.has_kernel_for_dispatch_key(DispatchKey.CompositeImplicitAutograd)
    except RuntimeError:  # an overload for TorchScript alone is never dispatched
        return False


def takes_tensor(operator: Any) -> bool:
    """Whether it computes from a tensor; one to write into does not count."""
    return any(
        "Tensor" in str(argument.type) and not argument.is_out for argument in operator._schema.arguments
    )
