"""What an op is called: torch's own name, the name the code wrote, and the type that labels use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from torchlens._keys.chains import Chains
from torchlens._keys.sides import SIDED
from torchlens._keys.spelling import Second, Spelling, spell
from torchlens._records import Kind, Rows, Side

_OPERATIONS: Final = {
    "__and__": "bitwise_and",
    "__or__": "bitwise_or",
    "__xor__": "bitwise_xor",
    "__invert__": "bitwise_not",
    "__lshift__": "bitwise_left_shift",
    "__rshift__": "bitwise_right_shift",
    "__rlshift__": "bitwise_left_shift",
    "__rrshift__": "bitwise_right_shift",
    "__iand__": "bitwise_and",
    "__ior__": "bitwise_or",
    "__ixor__": "bitwise_xor",
    "__ilshift__": "bitwise_left_shift",
    "__irshift__": "bitwise_right_shift",
    "__rsub__": "sub",
    "__rdiv__": "div",
    "__rtruediv__": "div",
    "__floordiv__": "floor_divide",
    "__rfloordiv__": "floor_divide",
    "__rmod__": "remainder",
    "__pow__": "pow",
    "__rpow__": "pow",
    "__ipow__": "pow",
    "__rmatmul__": "matmul",
}
"""Operators that torch implements under a dunder of their own."""


def torch_name(func: Any) -> str:
    """The name torch gives a function; for an attribute of tensors, the attribute's."""
    if isinstance(func, str):
        return func
    name = getattr(func, "__name__", type(func).__name__)
    if name == "__get__":
        return func.__self__.__name__
    if name == "__set__":
        return f"set_{func.__self__.__name__}"
    return name.partition(".")[0]


def operation_of(name: str) -> str:
    """Torch's own name for what is computed, however it was spelled: `add` for `add_` and `__iadd__`."""
    return _OPERATIONS.get(name) or name.strip("_")


def type_of(func_name: str) -> str:
    """The name without its outer underscores."""
    return func_name.strip("_") or func_name


class Written(NamedTuple):
    """What a row tells of how its call was written."""

    kind: Kind
    func: Any
    site: int
    args: tuple[Any, ...]
    side: Side

    @classmethod
    def of(cls, rows: Rows, row: int) -> Written:
        return cls(rows.kind[row], rows.func[row], rows.site[row], rows.args[row], rows.side[row])


class Speller:
    """Tells the name that the code wrote for a call, once for each kind of call at a place.

    `is_tensor` tells a recorded tensor from other arguments.
    """

    def __init__(self, chains: Chains, is_tensor: Callable[[object], bool]) -> None:
        self._chains = chains
        self._is_tensor = is_tensor
        self._names: dict[int, str] = {}
        self._spelled: dict[tuple[object, ...], Spelling] = {}
        self._sided: dict[int, bool] = {}

    def name(self, func: Any) -> str:
        """Torch's name of a row's function."""
        found = self._names.get(id(func))
        if found is None:
            found = self._names[id(func)] = torch_name(func)
        return found

    def sketch(self, func: Any, args: tuple[Any, ...], side: Side) -> object:
        """What the spelling depends on besides the place; equal for calls spelled the same there."""
        return (id(func), side, self._second(args)) if self.is_sided(func) else id(func)

    def is_sided(self, func: Any) -> bool:
        """Whether the spelling depends on which of its arguments were tensors."""
        sided = self._sided.get(id(func))
        if sided is None:
            sided = self._sided[id(func)] = self.name(func) in SIDED
        return sided

    def spelling(self, call: Written) -> Spelling:
        """The call's `func_name`, and whether it could be told."""
        key = (call.site, self.sketch(call.func, call.args, call.side))
        found = self._spelled.get(key)
        if found is None:
            found = self._spelled[key] = self._spell(call)
        return found

    def _spell(self, call: Written) -> Spelling:
        name = self.name(call.func)
        caller = self._chains.caller(call.site)
        if caller is None or call.kind != "call":
            return Spelling(name, True)
        is_method = getattr(call.func, "__qualname__", "").startswith("Tensor")
        return spell(name, *caller, call.side, is_method, self._second(call.args))

    def _second(self, args: tuple[Any, ...]) -> Second:
        return "none" if len(args) < 2 else "tensor" if self._is_tensor(args[1]) else "other"
