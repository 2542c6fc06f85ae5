"""The name of a call as the code wrote it: torch passes on `add` for `x + 1`, `sum(...)` and `x.add(1)`."""

from __future__ import annotations

from functools import lru_cache
from types import CodeType
from typing import Literal, NamedTuple, TypeAlias

from torchlens._keys.bytecode import ByCode
from torchlens._keys.expressions import Callee
from torchlens._keys.uses import Use, use
from torchlens._records import Side

Second: TypeAlias = Literal["tensor", "other", "none"]


class Spelling(NamedTuple):
    """`known` is False where the spelling cannot be told; `func_name` is then torch's own name."""

    func_name: str
    known: bool


class _Operator(NamedTuple):
    """An operator that arrives under a name that a plain call has too."""

    form: Literal["binary", "reflected", "inplace", "compare", "unary"]
    stem: str


_OPERATORS = {
    "add": _Operator("binary", "add"),
    "sub": _Operator("binary", "sub"),
    "mul": _Operator("binary", "mul"),
    "div": _Operator("binary", "truediv"),
    "true_divide": _Operator("binary", "truediv"),
    "floor_divide": _Operator("binary", "floordiv"),
    "remainder": _Operator("binary", "mod"),
    "pow": _Operator("binary", "pow"),
    "matmul": _Operator("binary", "matmul"),
    # `x & 1` arrives as `__and__`, so these are `1 & x`
    "bitwise_and": _Operator("reflected", "and"),
    "bitwise_or": _Operator("reflected", "or"),
    "bitwise_xor": _Operator("reflected", "xor"),
    "add_": _Operator("inplace", "add"),
    "sub_": _Operator("inplace", "sub"),
    "mul_": _Operator("inplace", "mul"),
    "div_": _Operator("inplace", "truediv"),
    "true_divide_": _Operator("inplace", "truediv"),
    "floor_divide_": _Operator("inplace", "floordiv"),
    "remainder_": _Operator("inplace", "mod"),
    "pow_": _Operator("inplace", "pow"),
    "lt": _Operator("compare", "lt"),
    "le": _Operator("compare", "le"),
    "gt": _Operator("compare", "gt"),
    "ge": _Operator("compare", "ge"),
    "eq": _Operator("compare", "eq"),
    "ne": _Operator("compare", "ne"),
    "neg": _Operator("unary", "neg"),
    "positive": _Operator("unary", "pos"),
    "bitwise_not": _Operator("unary", "invert"),
    "abs": _Operator("unary", "abs"),
}
_RENAMED = {
    "__div__": Spelling("__truediv__", True),
    "__rdiv__": Spelling("__rtruediv__", True),
    "__idiv__": Spelling("__itruediv__", True),
}
"""Python 2's division; torch still calls it that."""

_FUNCTIONS = {"and": "and_", "or": "or_"}
"""Functions of `operator` whose name is not the stem."""
_TENSOR_CLASSES = frozenset({"Tensor", "TensorBase", "Parameter"})
_SUMMING = {"sum": "add", "prod": "mul"}
"""What takes a list and starts from a number, and the operator it applies."""
_SORTING = frozenset({"max", "min", "sorted", "sort", "insort", "bisect", "nlargest", "nsmallest"})
_APPLYING = frozenset({"reduce"})

_known: ByCode[dict[tuple[object, ...], Spelling]] = ByCode(lambda code: {})


def spell(name: str, code: CodeType, offset: int, side: Side, is_method: bool, second: Second) -> Spelling:
    """The name the code wrote for a call that torch names `name`, made by the instruction at `offset`.

    `side` is what `side_of_tensor` said; `is_method` whether the function came as a method of tensors, as all
    operators do (`torch.add` does not); `second` what the second argument is.
    """
    operator = _OPERATORS.get(name)
    if operator is None or not is_method:
        return _RENAMED[name] if name in _RENAMED else _plain(name)
    known = _known(code)
    key = (offset, name, side, second)
    spelling = known.get(key)
    if spelling is None:
        found = use(code, offset)
        write = _called if found.kind == "call" else _applied
        spelling = known[key] = write(name, operator, found, side, second)
    return spelling


def is_spelled_as_named(name: str) -> bool:
    """Whether a function is always written by the name that torch gives it, unlike operators."""
    return name not in _OPERATORS and name not in _RENAMED


@lru_cache(maxsize=1024)
def _plain(name: str) -> Spelling:
    return Spelling(name, True)


def _special(prefix: str, stem: str) -> Spelling:
    return Spelling(f"__{prefix}{stem}__", True)


def _applied(name: str, operator: _Operator, found: Use, side: Side, second: Second) -> Spelling:
    """Written with a symbol: the special method that Python calls on the tensor which did the work."""
    form, stem = operator
    if found.kind == form == "compare":
        return _special("", stem)
    if found.stem != stem:
        return Spelling(name, False)
    if found.kind == form == "inplace":
        return _special("i", stem)
    if found.kind == form == "unary":
        return _special("", stem)
    if form == "reflected":
        return _special("r", stem)
    if form == "binary" and found.kind in ("binary", "inplace"):
        return _by_side(name, stem, side, second)
    return Spelling(name, False)


def _by_side(name: str, stem: str, side: Side, second: Second) -> Spelling:
    if second == "tensor" or stem not in ("add", "mul") or side == "left":
        return _special("", stem)
    return _special("r", stem) if side == "right" else Spelling(name, False)


def _called(name: str, operator: _Operator, found: Use, side: Side, second: Second) -> Spelling:
    """Made by a call: of a method, of a function of `operator`, or of something that applies operators."""
    form, stem = operator
    callee = found.callee
    if callee.name is None:
        return Spelling(name, False)
    own = {"binary": ("", "r"), "reflected": ("r",), "inplace": ("i",)}.get(form, ("",))
    names = (name, *(f"__{prefix}{stem}__" for prefix in own))
    operands = 1 if form == "unary" else 2
    if callee.name in names and _is_own_method(callee, found, operands):
        return _plain(callee.name)
    if found.positional == operands and not found.keywords and callee.name in _function_names(form, stem):
        return _by_operator(name, operator, side, second)
    return _by_collection(name, operator, found, second)


def _is_own_method(callee: Callee, found: Use, operands: int) -> bool:
    """Whether it is `x.add(1)` or `Tensor.add(x, 1)`, which no function of `operator` looks like."""
    bound = found.positional is not None and found.positional < operands
    return bound or found.keywords or callee.owner in _TENSOR_CLASSES


def _function_names(form: str, stem: str) -> tuple[str, ...]:
    """The functions of `operator` that apply this operator."""
    plain = (_FUNCTIONS.get(stem, stem), f"__{stem}__")
    inplace = (f"i{stem}", f"__i{stem}__")
    if form == "inplace":
        return inplace
    # where the left operand has no in-place form, `iadd` falls back to what `add` does
    return plain if form in ("compare", "unary") else plain + inplace


def _by_operator(name: str, operator: _Operator, side: Side, second: Second) -> Spelling:
    form, stem = operator
    if form == "binary":
        return _by_side(name, stem, side, second)
    return _special({"reflected": "r", "inplace": "i"}.get(form, ""), stem)


def _by_collection(name: str, operator: _Operator, found: Use, second: Second) -> Spelling:
    form, stem = operator
    caller = found.callee.name
    if form == "compare" and caller in _SORTING:
        return _special("", stem)
    if form == "binary" and caller is not None and _SUMMING.get(caller) == stem:
        return _special("r" if second == "other" else "", stem)
    given = found.first
    if caller in _APPLYING and given.name is not None and second == "tensor":
        if given.name == name and given.owner in _TENSOR_CLASSES:
            return _plain(name)
        if given.name in _function_names(form, stem):
            return _by_operator(name, operator, None, second)
    return Spelling(name, False)
