"""Multiply-adds straight from a call, where a run on meta tensors fails, gives 0 or costs too much.

A formula is given what the call returned, then the call's own arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final, TypeAlias, cast

import torch
from torch import Tensor

from torchlens.flops.cost import Cost, UncountedError, product_cost

Formula: TypeAlias = Callable[..., Cost]


def first_tensor(out: object) -> Tensor:
    """The tensor that a call returned, alone or before others."""
    first = cast("tuple[object, ...]", out)[0] if isinstance(out, tuple) else out
    if not isinstance(first, Tensor):
        raise UncountedError("What it returned was not kept.")
    return first


# Matrices and vectors. Torch's meta kernels of vectors and of sums import the compiler, which takes seconds
# and replaces functions of torch; its counter has no formula for most of these.


def _matmul(out: object, a: Tensor, _b: Tensor, **_named: object) -> Cost:
    """Each output element is the product of two vectors."""
    return product_cost(2 * first_tensor(out).numel() * a.shape[-1])


def _linear(_out: object, x: Tensor, weight: Tensor, *_bias: object, **_named: object) -> Cost:
    """Each row of x meets each row of the weight."""
    return product_cost(2 * x.numel() * prod(weight.shape[:-1]))


def _by_matrix(_out: object, a: Tensor, b: Tensor, **_named: object) -> Cost:
    return product_cost(2 * a.numel() * b.shape[-1])


def _add_by_matrix(_out: object, _added: Tensor, a: Tensor, b: Tensor, **_named: object) -> Cost:
    return product_cost(2 * a.numel() * b.shape[-1])


def _by_vector(_out: object, a: Tensor, _vector: Tensor, **_named: object) -> Cost:
    return product_cost(2 * a.numel())


def _add_by_vector(_out: object, _added: Tensor, a: Tensor, _vector: Tensor, **_named: object) -> Cost:
    return product_cost(2 * a.numel())


def _add_outer(_out: object, _added: Tensor, a: Tensor, b: Tensor, **_named: object) -> Cost:
    return product_cost(2 * a.numel() * b.numel())


def _dot_products(out: object, x: Tensor, _y: Tensor, dim: int = -1) -> Cost:
    """As many products of vectors as there are output elements."""
    return product_cost(2 * first_tensor(out).numel() * x.shape[dim])


def _grouped(_out: object, a: Tensor, b: Tensor, *_rest: object, **_named: object) -> Cost:
    """A side without group dimension is shared out between the groups by rows, columns or channels."""
    groups = a.shape[0] if a.dim() == b.dim() == 3 else 1
    return product_cost(2 * groups * prod(a.shape[-2:]) * b.shape[-1])


def _bilinear(_out: object, x: Tensor, _y: Tensor, weight: Tensor, *_bias: object) -> Cost:
    """Σij x[b,i] W[o,i,j] y[b,j]: a product over i for each (b, o, j), then over j for each (b, o)."""
    features, inner, last = weight.shape
    return product_cost(2 * prod(x.shape[:-1]) * features * last * (inner + 1))


def _euclidean_distances(_out: object, x: Tensor, y: Tensor) -> Cost:
    """One matrix product: torch appends the squared norm and a 1 to each of the m coordinates."""
    return product_cost(2 * prod(x.shape[:-1]) * y.shape[-2] * (x.shape[-1] + 2))


def _convolve_time_major(out: object, _x: Tensor, weight: Tensor, *_rest: object) -> Cost:
    """Each output element sums kernel times input channels."""
    return product_cost(2 * first_tensor(out).numel() * prod(weight.shape[:2]))


# Recurrent layers


def _recurrent_layer(_out: object, x: Tensor, *rest: object) -> Cost:
    """Each step of each sequence goes once through every weight matrix: that many multiply-adds.

    The rows of `x` are the steps of all sequences, padded or packed. The weights follow the initial state,
    which follows the batch sizes where the sequence is packed; projections (`w_hr`) are matrices among them,
    biases are vectors, each direction and layer has its own. A run on meta tensors gives the same number,
    but step by step: seconds for the 512 steps of a two-layer bidirectional LSTM.
    """
    weights = next(found for found in map(_matrices, rest) if found)
    return product_cost(2 * prod(x.shape[:-1]) * sum(weight.numel() for weight in weights))


def _recurrent_cell(_out: object, x: Tensor, _hx: object, *weights: Tensor | None) -> Cost:
    """One step: each row goes once through both weight matrices."""
    return product_cost(2 * prod(x.shape[:-1]) * sum(weight.numel() for weight in _matrices(weights)))


def _matrices(argument: object) -> list[Tensor]:
    if not isinstance(argument, (tuple, list)):
        return []
    items = cast("tuple[object, ...] | list[object]", argument)
    return [item for item in items if isinstance(item, Tensor) and item.dim() == 2]


# Attention


def _attention(
    out: object, query: Tensor, key: Tensor, value: Tensor, *_rest: object, **_named: object
) -> Cost:
    """2E FLOPs for the score of a query with a key, 2V to add up the value, masked or not, in each head.

    The output has a row for each query and head, grouped heads and broadcast batches included. A run on meta
    tensors gives the same, and would import the compiler.
    """
    rows = prod(first_tensor(out).shape[:-1])
    return product_cost(2 * rows * key.shape[-2] * (query.shape[-1] + value.shape[-1]))


def _native_attention(
    _out: object, query: Tensor, key: Tensor, _value: Tensor, embed_dim: int, *_rest: object, **_named: object
) -> Cost:
    """Multi-head attention with its four projections in one kernel."""
    return product_cost(_attention_flops(query, key, embed_dim))


def _fused_encoder_layer(_out: object, src: Tensor, embed_dim: int, *rest: object, **_named: object) -> Cost:
    """Self-attention with its projections, then two linear layers of equal size."""
    first_linear = rest[12]  # after heads, four projection parameters, three flags, four norm parameters
    assert isinstance(first_linear, Tensor)
    rows = sum(_lengths(src))
    return product_cost(_attention_flops(src, src, embed_dim) + 2 * rows * 2 * first_linear.numel())


def _attention_flops(query: Tensor, key: Tensor, width: int) -> int:
    """Of each sequence with T queries and S keys of width E, masked or not.

    A query's row is projected twice (query, result) and a key's twice (key, value): 2E² FLOPs each. Scores
    and weighted values take 2TSE each, whatever the number of heads: H heads of E/H channels.
    """
    pairs = zip(_lengths(query), _lengths(key), strict=True)
    return sum(4 * width**2 * (t + s) + 4 * t * s * width for t, s in pairs)


def _lengths(batch: Tensor) -> list[int]:
    """The length of each sequence; in a nested tensor each has its own."""
    if not batch.is_nested:
        return [batch.shape[1]] * batch.shape[0]
    with torch.no_grad():
        return [sequence.shape[0] for sequence in batch.unbind()]


PRODUCTS: Final[dict[str, Formula]] = {
    **dict.fromkeys(("matmul", "linalg_matmul"), _matmul),
    "linear": _linear,
    "_int_mm": _by_matrix,
    **dict.fromkeys(("addmm", "addbmm", "baddbmm", "_addmm_activation"), _add_by_matrix),
    **dict.fromkeys(("mv", "dot", "vdot"), _by_vector),
    "addmv": _add_by_vector,
    "addr": _add_outer,
    "linalg_vecdot": _dot_products,
    **dict.fromkeys(("_grouped_mm", "_scaled_grouped_mm"), _grouped),
    "bilinear": _bilinear,
    "_euclidean_dist": _euclidean_distances,
    "conv_tbc": _convolve_time_major,
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), _recurrent_layer),
    **dict.fromkeys(("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"), _recurrent_cell),
    "scaled_dot_product_attention": _attention,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_fused_attention_overrideable": _attention,
    "_native_multi_head_attention": _native_attention,
    "_transformer_encoder_layer_fwd": _fused_encoder_layer,
}
"""By name in `torch.ops.aten`; in-place forms share the name without underscore."""
