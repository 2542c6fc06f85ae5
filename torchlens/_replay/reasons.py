"""Why a recorded call cannot be made again, as far as the record tells before trying."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, cast

import torch

from torchlens._records import Opaque, Rows

_UNINITIALISED: Final = frozenset(
    "empty empty_like empty_strided empty_permuted empty_quantized new_empty new_empty_strided "
    "resize_ resize_as_".split()
)
_OF_A_LEVEL: Final = frozenset({"_make_dual", "_unpack_dual"})
_READS_BESIDE_ITS_ARGUMENTS: Final = frozenset({"grad", "_grad", "_base"})
"""Attributes whose tensor is not computed from the value of the tensor they are read of."""


def why_not(rows: Rows, row: int, func: Any) -> str | None:
    """The first reason against making a row's call again by calling `func`; None where there is none."""
    kind, args = rows.kind[row], rows.args[row]
    if kind in ("input", "source") or (kind == "buffer" and not args):
        return f"an op of kind {kind!r} was computed from nothing that was recorded"
    if isinstance(func, str):
        return f"{func} is a whole transform or TorchScript module, whose function a trace does not hold"
    name = func.__self__.__name__ if hasattr(func, "__self__") and func.__name__ == "__get__" else None
    if name in _READS_BESIDE_ITS_ARGUMENTS:
        return f"the attribute {name!r} is not computed from the tensor it is read of"
    if gives_raw_memory(func, args):
        return "it gives memory that nothing has written yet"
    if func is torch.autograd.grad:
        return "gradients are taken in the graph that the run made, which a trace does not hold"
    if _name_of(func) in _OF_A_LEVEL:
        return "it works on a level of forward-mode gradients that is over"
    found = next(_opaque_in([args, rows.kwargs[row] or {}]), None)
    return None if found is None else f"an argument is an object that a trace does not hold: {found.text}"


def _name_of(func: Any) -> str:
    return func.__name__.partition(".")[0] if hasattr(func, "__name__") else ""


def gives_raw_memory(func: Any, args: tuple[Any, ...]) -> bool:
    """Whether a call gives memory that nothing has written: `empty` and its kin, `x.new(2, 3)`."""
    name = _name_of(func)
    if name == "new":
        return all(isinstance(size, (int, torch.Size)) for size in args[1:])
    return name in _UNINITIALISED


def _opaque_in(value: Any) -> Iterator[Opaque]:
    if type(value) is Opaque:
        yield value
    elif isinstance(value, (list, tuple)):
        for item in cast("list[Any]", value):
            yield from _opaque_in(item)
    elif isinstance(value, dict):
        for key, item in cast("dict[Any, Any]", value).items():
            yield from _opaque_in(key)
            yield from _opaque_in(item)
    elif type(value) is slice:
        for part in (value.start, value.stop, value.step):
            yield from _opaque_in(part)
