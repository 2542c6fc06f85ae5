"""Counting a call by the rule of its function, without running anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal, TypeAlias, cast

import torch
from torch import Tensor

from torchlens.flops.cost import FREE, Cost, UncountedError, element_cost
from torchlens.flops.products import PRODUCTS, Formula
from torchlens.flops.windows import ELEMENTS

DirectRule: TypeAlias = Literal["free", "output", "input", "larger", "list", "formula"]
"""`output`, `input`, `larger`: one FLOP an element of the output, of the input, of the larger of the two;
`list`: one for each element of the tensors in the first argument; `formula`: one of `FORMULAS`.
"""

FORMULAS: Final[dict[str, Formula]] = {**PRODUCTS, **ELEMENTS}

_SPARSE: Final = frozenset(
    (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
)


def direct_cost(
    rule: DirectRule, name: str, args: tuple[object, ...], kwargs: Mapping[str, object], out: object
) -> Cost:
    """Cost of the call `name(*args, **kwargs)` that returned `out`, by this rule."""
    if rule == "free":
        return FREE
    if rule == "formula":
        return _by_formula(name, args, kwargs, out)
    if rule == "output" and isinstance(out, Tensor):  # what most calls are
        return element_cost(_elements(out))
    if rule == "list":
        return element_cost(sum(_elements(tensor) for tensor in tensors_in(args[:1])))
    sizes = [_elements(tensor) for tensor in tensors_in(out)] if rule != "input" else []
    if rule != "output" or not sizes:
        inputs = [args, *(value for key, value in kwargs.items() if key != "out")]
        sizes += [_elements(tensor) for tensor in tensors_in(inputs)]
    if not sizes:
        raise UncountedError(f"No tensor that `{name}` worked on was kept.")
    return element_cost(max(sizes))


def tensors_in(value: object) -> Iterator[Tensor]:
    """The tensors in a value and in its lists and tuples."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in cast("tuple[object, ...] | list[object]", value):
            yield from tensors_in(item)


def _by_formula(name: str, args: tuple[object, ...], kwargs: Mapping[str, object], out: object) -> Cost:
    for tensor in tensors_in(args):
        _refuse_sparse(tensor)
    named = {key: value for key, value in kwargs.items() if key not in ("self", "input", "out")}
    first = [kwargs[key] for key in ("self", "input") if key in kwargs]
    formula = FORMULAS.get(name) or FORMULAS[name.rstrip("_")]
    return formula(out, *first, *args, **named)


def _elements(tensor: Tensor) -> int:
    _refuse_sparse(tensor)
    return tensor.numel()


def _refuse_sparse(tensor: Tensor) -> None:
    if tensor.layout in _SPARSE:
        raise UncountedError(
            "It works on a sparse tensor, whose shape does not tell how many elements it holds."
        )
