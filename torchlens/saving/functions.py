"""Torch's functions by name: the closed list from which the functions of a saved trace are taken.

A file names functions, it holds none. What is not on the list is known by its name alone: it can be read
about, and not called.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NoReturn, TypeAlias, cast

import torch
from torch import Tensor

from torchlens._keys.names import torch_name
from torchlens.errors import UnsavedFunctionError

_BUILT_IN: Final = cast("Any", torch._C)
_MODULES: Final = cast(
    "Mapping[str, types.ModuleType]",
    {
        "torch.functional": torch.functional,
        "torch.nn.functional": torch.nn.functional,
        "torch.nn.init": torch.nn.init,
        "torch.linalg": torch.linalg,
        "torch.fft": torch.fft,
        "torch.special": torch.special,
        "torch.sparse": torch.sparse,
        "torch.nested": torch.nested,
        "torch._C._nn": _BUILT_IN._nn,
        "torch._C._fft": _BUILT_IN._fft,
        "torch._C._linalg": _BUILT_IN._linalg,
        "torch._C._special": _BUILT_IN._special,
        "torch._C._sparse": _BUILT_IN._sparse,
        "torch._C._nested": _BUILT_IN._nested,
    },
)
_OPERATORS: Final = {"aten": torch.ops.aten, "prims": torch.ops.prims, "quantized": torch.ops.quantized}
_FUNCTIONS: Final = (types.FunctionType, types.BuiltinFunctionType)
_METHODS: Final = (types.FunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
_ATTRIBUTES: Final = (types.GetSetDescriptorType, property)
_NEVER: Final = frozenset(
    "load save from_file frombuffer from_numpy_file compile numpy tolist item backward "
    "register_hook register_post_accumulate_grad_hook share_memory_ module_load storage untyped_storage "
    "__reduce__ __reduce_ex__ _reduce_ex_internal __setstate__ __deepcopy__ __dlpack__ __torch_function__ "
    "__torch_dispatch__ __class__ __dict__ __init__ __new__ __init_subclass__ __getattribute__ __setattr__ "
    "__delattr__ __dir__ __subclasshook__ __format__ __sizeof__ __array__ __array_wrap__ _make_subclass "
    "_make_wrapper_subclass _make_dtensor _rebuild_from_type handle_torch_function boolean_dispatch".split()
)
"""What loads, saves or pickles, runs a function it is given, or is no computation at all."""

FunctionName: TypeAlias = tuple[str, str]
"""(namespace, name); for an attribute of tensors the namespace ends with `.get` or `.set`."""


@dataclass(frozen=True)
class Unresolved:
    """Stands for a function that was called and is not on the list."""

    namespace: str
    __name__: str

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        """A file holds no functions: raises `UnsavedFunctionError`."""
        raise UnsavedFunctionError(
            f"{self.namespace}.{self.__name__} is no function of torch's that a file may name, so the loaded "
            "trace has its name and its values only; trace the model again to call it"
        )


def name_of(func: Any) -> FunctionName | Unresolved:
    """How a file names a function."""
    if isinstance(func, Unresolved):
        return func
    found = _names().get(id(func)) or _operator_name(func) or _attribute_name(func)
    if found is not None:
        return found
    module = func.__module__ if hasattr(func, "__module__") else None
    return Unresolved(str(module or "torch"), torch_name(func))


def resolve(name: FunctionName) -> Callable[..., Any] | None:
    """The function of a name on the list; None for any other name."""
    return _listed().get(name) or _operator(name)


@cache
def _listed() -> Mapping[FunctionName, Callable[..., Any]]:
    """Every function that may be named. Made by looking at what is there: nothing is called or imported."""
    listed: dict[FunctionName, Callable[..., Any]] = {}
    overridable = _overridable()
    built_in = _BUILT_IN._VariableFunctions
    for name, func in _callables({name: getattr(built_in, name) for name in dir(built_in)}, _FUNCTIONS):
        listed["torch", name] = func
    for name, func in _callables(vars(torch), _FUNCTIONS):
        if id(func) in overridable or name == "from_numpy":
            listed.setdefault(("torch", name), func)
    listed["torch.autograd", "grad"] = torch.autograd.grad
    for namespace, module in _MODULES.items():
        for name, func in _callables(vars(module), _FUNCTIONS):
            if func.__module__ in (None, namespace) or id(func) in overridable:
                listed[namespace, name] = func
    for owner in (torch._C.TensorBase, Tensor):
        for name, func in _callables(vars(owner), _METHODS):
            listed["torch.Tensor", name] = func
        for name, attribute in _callables(vars(owner), _ATTRIBUTES):
            listed["torch.Tensor.get", name] = attribute.__get__
            listed["torch.Tensor.set", name] = attribute.__set__
    return listed


def _callables(space: Mapping[str, Any], kinds: tuple[type, ...]) -> Iterator[tuple[str, Any]]:
    """What a namespace holds of some kinds, without what is never named."""
    return ((name, held) for name, held in list(space.items()) if type(held) in kinds and _may_be_named(name))


def _may_be_named(name: str) -> bool:
    """Whether a function of this name only computes, and checks what it is given."""
    return name not in _NEVER and "unsafe" not in name and name != "_nested_view_from_buffer"


def _overridable() -> set[int]:
    """Ids of the functions, written in Python or C, that ask a function mode before they run."""
    found = cast("Mapping[Any, list[object]]", torch.overrides.get_overridable_functions())
    return {id(func) for held in found.values() for func in held}


@cache
def _names() -> Mapping[int, FunctionName]:
    """Id of each listed function to its first name; the list keeps them alive."""
    names: dict[int, FunctionName] = {}
    for name, func in _listed().items():
        names.setdefault(id(func), name)
    return names


def _attribute_name(func: Any) -> FunctionName | None:
    """An attribute's reader or writer is a new object at each look; equal ones are the same."""
    if not hasattr(func, "__self__") or not isinstance(func.__self__, _ATTRIBUTES):
        return None
    form = {"__get__": "get", "__set__": "set"}.get(func.__name__)
    held = func.__self__
    attribute = held.fget.__name__ if isinstance(held, property) and held.fget is not None else None
    name = (f"torch.Tensor.{form}", attribute or cast("Any", held).__name__)
    return name if _listed().get(name) == func else None


def _operator_name(func: Any) -> FunctionName | None:
    if isinstance(func, torch._ops.OpOverload):
        namespace, _, name = func.name().partition("::")
        name = name if "." in name else f"{name}.default"
    elif isinstance(func, torch._ops.OpOverloadPacket):
        namespace, _, name = func._qualified_op_name.partition("::")
    else:
        return None
    return (f"torch.ops.{namespace}", name) if namespace in _OPERATORS else None


def _operator(name: FunctionName) -> Callable[..., Any] | None:
    """An operator or one of its overloads, of the libraries that torch itself brings."""
    namespace = _OPERATORS.get(name[0].removeprefix("torch.ops."))
    operator, _, overload = name[1].partition(".")
    if namespace is None or not name[0].startswith("torch.ops.") or not _may_be_named(operator):
        return None
    if not operator.isidentifier() or operator.startswith("__"):
        return None
    schemas = torch._C._jit_get_schemas_for_operator(f"{name[0].removeprefix('torch.ops.')}::{operator}")
    if not any(
        (schema.overload_name or "default") == (overload or "default") or not overload for schema in schemas
    ):
        return None
    packet = getattr(namespace, operator)
    return getattr(packet, overload) if overload else packet
