"""One FLOP an element, where neither the input nor the output tells how many: windows, look-ups, updates.

A formula is given what the call returned, then the call's own arguments.
"""

from __future__ import annotations

from math import prod
from typing import Final

from torch import Tensor

from torchlens.flops.cost import FREE, Cost, UncountedError, element_cost
from torchlens.flops.products import Formula, first_tensor


def _trace(_out: object, x: Tensor) -> Cost:
    return element_cost(min(x.shape))


def _pool(dims: int) -> Formula:
    """A reduction of one window for each output element, padding included."""

    def formula(
        out: object, _x: Tensor, kernel_size: int | list[int], *_rest: object, **_named: object
    ) -> Cost:
        kernel = [kernel_size] if isinstance(kernel_size, int) else kernel_size
        window = prod(kernel) if len(kernel) == dims else kernel[0] ** dims
        return element_cost(first_tensor(out).numel() * window)

    return formula


def _adaptive_pool(dims: int) -> Formula:
    """A reduction over windows that share out the input; they overlap where sizes do not divide."""

    def formula(out: object, x: Tensor, *_size: object, **_named: object) -> Cost:
        sizes = zip(x.shape[-dims:], first_tensor(out).shape[-dims:], strict=True)
        return element_cost(prod(x.shape[:-dims]) * prod(_covered(n, parts) for n, parts in sizes))

    return formula


def _covered(n: int, parts: int) -> int:
    """Elements in all windows: window i runs from floor(i·n/parts) to ceil((i+1)·n/parts)."""
    return sum(-(-(i + 1) * n // parts) - i * n // parts for i in range(parts))


def _embedding_bag(_out: object, weight: Tensor, indices: Tensor, *_rest: object, **_named: object) -> Cost:
    """A reduction over the rows that were looked up."""
    return element_cost(indices.numel() * weight.shape[1])


def _dropout(
    _out: object, x: Tensor, p: float = 0.5, train: bool = True, *_inplace: object, **named: object
) -> Cost:
    """Elementwise, unless it hands its input on."""
    return element_cost(x.numel()) if p != 0 and train and named.get("training", True) else FREE


def _scatter(_out: object, _x: Tensor, dim: int, index: Tensor, src: object = None, **named: object) -> Cost:
    """A copy, unless it combines what it writes with what is there."""
    return element_cost(index.numel()) if named.get("reduce") is not None else FREE


def _scatter_reduce(
    _out: object, _x: Tensor, dim: int, index: Tensor, *_rest: object, **_named: object
) -> Cost:
    """One element written, one combined."""
    return element_cost(index.numel())


def _index_reduce(
    _out: object, _x: Tensor, dim: int, index: Tensor, source: Tensor, *_rest: object, **_named: object
) -> Cost:
    """One element of the source, one combined."""
    return element_cost(source.numel())


def _put(_out: object, _x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Cost:
    """A copy, unless it adds to what is there."""
    return element_cost(source.numel()) if accumulate else FREE


def _index_put(
    _out: object, _x: Tensor, indices: object, values: Tensor, accumulate: bool = False, *_rest: object
) -> Cost:
    """A copy, unless it adds to what is there."""
    if accumulate:
        raise UncountedError("It adds as many elements as its indices select, which shapes do not tell.")
    return FREE


ELEMENTS: Final[dict[str, Formula]] = {
    "trace": _trace,
    **{f"{kind}_pool{n}d": _pool(n) for kind in ("max", "avg") for n in (1, 2, 3)},
    **{f"{kind}_pool{n}d_with_indices": _pool(n) for kind in ("max", "fractional_max") for n in (1, 2, 3)},
    **{f"fractional_max_pool{n}d": _pool(n) for n in (2, 3)},
    **{f"adaptive_{kind}_pool{n}d": _adaptive_pool(n) for kind in ("max", "avg") for n in (1, 2, 3)},
    **{f"_adaptive_avg_pool{n}d": _adaptive_pool(n) for n in (2, 3)},
    **dict.fromkeys(("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only"), _embedding_bag),
    **dict.fromkeys(("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout"), _dropout),
    **dict.fromkeys(("dropout1d", "dropout2d", "dropout3d"), _dropout),
    "scatter": _scatter,
    **dict.fromkeys(("scatter_add", "scatter_reduce"), _scatter_reduce),
    **dict.fromkeys(("index_add", "index_reduce"), _index_reduce),
    "put": _put,
    **dict.fromkeys(("index_put", "_index_put_impl_", "_unsafe_index_put"), _index_put),
}
"""By name in `torch.ops.aten`; in-place forms share the name without underscore."""
