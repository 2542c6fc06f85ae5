"""What an op is called: torch's own name, the name the code wrote, and the type that labels use."""

from __future__ import annotations

from typing import Any, Final

from torchlens._keys.chains import Chains
from torchlens._keys.sides import SIDED
from torchlens._keys.spelling import Second, Spelling, spell
from torchlens._records import Rows
from torchlens._values.store import is_tensor

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


class Speller:
    """Tells the name that the code wrote for each row, once for each kind of call at a place."""

    def __init__(self, rows: Rows, chains: Chains) -> None:
        self._rows = rows
        self._chains = chains
        self._names: dict[int, str] = {}
        self._spelled: dict[tuple[object, ...], Spelling] = {}
        self._sided: dict[int, bool] = {}

    def name(self, func: Any) -> str:
        """Torch's name of a row's function."""
        found = self._names.get(id(func))
        if found is None:
            found = self._names[id(func)] = torch_name(func)
        return found

    def sketch(self, row: int) -> object:
        """What the spelling of a row depends on besides its place; equal for rows spelled the same there."""
        func = self._rows.func[row]
        sided = self._sided.get(id(func))
        if sided is None:
            sided = self._sided[id(func)] = self.name(func) in SIDED
        return (id(func), self._rows.side[row], self._second(row)) if sided else id(func)

    def spelling(self, row: int) -> Spelling:
        """The row's `func_name`, and whether it could be told."""
        key = (self._rows.site[row], self.sketch(row))
        found = self._spelled.get(key)
        if found is None:
            found = self._spelled[key] = self._spell(row)
        return found

    def _spell(self, row: int) -> Spelling:
        func = self._rows.func[row]
        name = self.name(func)
        caller = self._chains.caller(self._rows.site[row])
        if caller is None or self._rows.kind[row] != "call":
            return Spelling(name, True)
        is_method = getattr(func, "__qualname__", "").startswith("Tensor")
        return spell(name, *caller, self._rows.side[row], is_method, self._second(row))

    def _second(self, row: int) -> Second:
        args = self._rows.args[row]
        return "none" if len(args) < 2 else "tensor" if is_tensor(args[1]) else "other"
