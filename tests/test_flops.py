"""Counts against arithmetic by hand, written beside each; torch's own counter as a second oracle."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
import types
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import flop_counter
from torch.utils._python_dispatch import TorchDispatchMode

from torchlens._records import Opaque
from torchlens.flops import Cost, count

GUARDS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")


class Call(NamedTuple):
    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Any

    @property
    def name(self) -> str:
        return self.func.__name__


class Recorder(TorchFunctionMode):
    """Keeps each call as it arrives; functions that torch writes in Python are entered if asked."""

    def __init__(self, enter: bool = False) -> None:
        super().__init__()
        self.enter = enter
        self.calls: list[Call] = []

    def __torch_function__(
        self, func: Any, types_: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.enter and isinstance(func, types.FunctionType) and func.__module__ == "torch.nn.functional":
            inside = func.__globals__ | dict.fromkeys(GUARDS, lambda *_: False)
            entered = types.FunctionType(func.__code__, inside, func.__name__, func.__defaults__)
            entered.__kwdefaults__ = func.__kwdefaults__
            with self:
                return entered(*args, **kwargs)
        out = func(*args, **kwargs)
        self.calls.append(Call(func, args, kwargs, out))
        return out


class Kernels(TorchDispatchMode):
    """Keeps each dispatched operator."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else it loads the compiler

    def __torch_dispatch__(
        self, func: Any, types_: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        self.calls.append(Call(func, args, kwargs or {}, out))
        return out


def calls_of(run: Callable[[], object], enter: bool = False) -> list[Call]:
    with Recorder(enter) as recorder:
        run()
    return recorder.calls


def last_call(run: Callable[[], object], enter: bool = False) -> Call:
    """The call that `run` ends with; making its arguments comes before."""
    return calls_of(run, enter)[-1]


BATCH, BATCH_OUT = torch.zeros(2, 3, 3), torch.zeros(2, 3, 3)
MASK = torch.tensor([[True, False, True], [False, False, True]])


def f32(*shape: int) -> Tensor:
    return torch.zeros(shape)


MATRIX_PRODUCTS = {
    # each output element takes as many multiply-adds as the contracted dimension is long
    "mm": (lambda: torch.mm(f32(2, 3), f32(3, 5)), 2 * 5 * 3),
    "mm_by_operator": (lambda: f32(2, 3) @ f32(3, 5), 2 * 5 * 3),
    "rmatmul_of_matrices": (lambda: torch.Tensor.__rmatmul__(f32(3, 5), f32(2, 3)), 2 * 5 * 3),
    "matmul_batch": (lambda: torch.matmul(f32(7, 2, 3), f32(7, 3, 5)), 7 * 2 * 5 * 3),
    "matmul_broadcast": (lambda: f32(7, 1, 2, 3).matmul(f32(4, 3, 5)), 7 * 4 * 2 * 5 * 3),
    "matmul_vector": (lambda: f32(2, 3) @ f32(3), 2 * 3),
    "vector_matmul": (lambda: f32(3) @ f32(3, 5), 5 * 3),
    "vector_vector": (lambda: f32(3) @ f32(3), 3),
    "dot": (lambda: torch.dot(f32(3), f32(3)), 3),
    "vdot": (lambda: torch.vdot(f32(3), f32(3)), 3),
    "vecdot": (lambda: torch.linalg.vecdot(f32(4, 3), f32(4, 3)), 4 * 3),
    "inner": (lambda: torch.inner(f32(2, 3), f32(5, 3)), 2 * 5 * 3),
    "mv": (lambda: torch.mv(f32(2, 3), f32(3)), 2 * 3),
    "bmm": (lambda: torch.bmm(f32(7, 2, 3), f32(7, 3, 5)), 7 * 2 * 5 * 3),
    "bmm_out": (lambda: torch.bmm(BATCH, BATCH, out=BATCH_OUT), 2 * 3 * 3 * 3),
    "linear": (lambda: F.linear(f32(2, 3), f32(5, 3)), 2 * 5 * 3),
    "linear_bias_not_counted": (lambda: F.linear(f32(2, 3), f32(5, 3), f32(5)), 2 * 5 * 3),
    "linear_4d": (lambda: F.linear(f32(7, 4, 2, 3), f32(5, 3), f32(5)), 7 * 4 * 2 * 5 * 3),
    "linear_1d": (lambda: F.linear(f32(3), f32(5, 3)), 5 * 3),
    "linear_to_scalar": (lambda: F.linear(f32(2, 3), f32(3)), 2 * 3),
    "linear_keywords": (lambda: F.linear(input=f32(2, 3), weight=f32(5, 3), bias=None), 2 * 5 * 3),
    "addmm": (lambda: torch.addmm(f32(5), f32(2, 3), f32(3, 5)), 2 * 5 * 3),
    "addmm_in_place": (lambda: f32(2, 5).addmm_(f32(2, 3), f32(3, 5), beta=0.5), 2 * 5 * 3),
    "addmv": (lambda: torch.addmv(f32(2), f32(2, 3), f32(3)), 2 * 3),
    "addr": (lambda: torch.addr(f32(2, 5), f32(2), f32(5)), 2 * 5),
    "baddbmm": (lambda: torch.baddbmm(f32(7, 2, 5), f32(7, 2, 3), f32(7, 3, 5)), 7 * 2 * 5 * 3),
    "baddbmm_in_place": (lambda: f32(7, 2, 5).baddbmm_(f32(7, 2, 3), f32(7, 3, 5)), 7 * 2 * 5 * 3),
    "addbmm": (lambda: torch.addbmm(f32(2, 5), f32(7, 2, 3), f32(7, 3, 5)), 7 * 2 * 5 * 3),
    "tensordot": (lambda: torch._VF.tensordot(f32(2, 3, 4), f32(3, 4, 5), [1, 2], [0, 1]), 2 * 5 * 12),
    "multi_dot": (lambda: torch.linalg.multi_dot([f32(2, 3), f32(3, 5), f32(5, 7)]), 2 * 3 * 5 + 2 * 5 * 7),
    "matrix_power": (lambda: torch.linalg.matrix_power(f32(3, 3), 3), 2 * 3**3),  # two products
    "einsum_matrix": (lambda: torch._VF.einsum("ij,jk->ik", [f32(2, 3), f32(3, 5)]), 2 * 5 * 3),
    "einsum_heads": (
        lambda: torch._VF.einsum("bhid,bhjd->bhij", [f32(2, 3, 4, 5), f32(2, 3, 6, 5)]),
        2 * 3 * 4 * 6 * 5,
    ),
    "einsum_dot": (lambda: torch._VF.einsum("i,i->", [f32(3), f32(3)]), 3),
    # left to right: bo j from i, then bo from j
    "einsum_three": (
        lambda: torch._VF.einsum("bi,oij,bj->bo", [f32(2, 3), f32(6, 3, 4), f32(2, 4)]),
        2 * 6 * 4 * 3 + 2 * 6 * 4,
    ),
    "bilinear": (lambda: torch.bilinear(f32(2, 3), f32(2, 4), f32(6, 3, 4)), 2 * 6 * 4 * 3 + 2 * 6 * 4),
    "bfloat16": (lambda: torch.mm(f32(2, 3).bfloat16(), f32(3, 5).bfloat16()), 2 * 5 * 3),
    "complex": (lambda: torch.mm(f32(2, 3).cfloat(), f32(3, 5).cfloat()), 2 * 5 * 3),
    "integers": (lambda: torch.mm(f32(2, 3).long(), f32(3, 5).long()), 2 * 5 * 3),
    "meta": (lambda: torch.mm(f32(2, 3).to("meta"), f32(3, 5).to("meta")), 2 * 5 * 3),
    "transposed_views": (lambda: torch.mm(f32(3, 2).mT, f32(5, 3).mT), 2 * 5 * 3),
    "aten_overload": (lambda: torch.ops.aten.mm.default(f32(2, 3), f32(3, 5)), 2 * 5 * 3),
    "aten_packet": (lambda: torch.ops.aten.mm(f32(2, 3), f32(3, 5)), 2 * 5 * 3),
}
CONVOLUTIONS = {
    # output elements, times input channels of the group, times kernel
    "1d": (lambda: torch.conv1d(f32(2, 4, 10), f32(6, 4, 3)), (2 * 6 * 8) * 4 * 3),
    "1d_unbatched": (lambda: torch.conv1d(f32(4, 10), f32(6, 4, 3)), (6 * 8) * 4 * 3),
    "2d": (lambda: torch.conv2d(f32(2, 4, 8, 9), f32(6, 4, 3, 3)), (2 * 6 * 6 * 7) * 4 * 9),
    "2d_bias_not_counted": (
        lambda: torch.conv2d(f32(2, 4, 8, 9), f32(6, 4, 3, 3), f32(6)),
        (2 * 6 * 42) * 4 * 9,
    ),
    "3d": (lambda: torch.conv3d(f32(1, 2, 4, 5, 6), f32(3, 2, 2, 2, 2)), (3 * 3 * 4 * 5) * 2 * 8),
    "2d_padded": (lambda: torch.conv2d(f32(1, 4, 8, 8), f32(6, 4, 3, 3), None, 1, 1), (6 * 8 * 8) * 4 * 9),
    "2d_same": (lambda: torch.conv2d(f32(1, 4, 8, 8), f32(6, 4, 3, 3), padding="same"), (6 * 8 * 8) * 4 * 9),
    # (8 - 3) // 2 + 1 = 3
    "2d_strided": (lambda: torch.conv2d(f32(1, 4, 8, 8), f32(6, 4, 3, 3), stride=2), (6 * 3 * 3) * 4 * 9),
    # a kernel of 3 dilated by 2 covers 5: 8 - 5 + 1 = 4
    "2d_dilated": (lambda: torch.conv2d(f32(1, 4, 8, 8), f32(6, 4, 3, 3), dilation=2), (6 * 4 * 4) * 4 * 9),
    "2d_grouped": (lambda: torch.conv2d(f32(1, 4, 8, 8), f32(6, 2, 3, 3), groups=2), (6 * 6 * 6) * 2 * 9),
    "2d_depthwise": (lambda: torch.conv2d(f32(1, 4, 8, 8), f32(4, 1, 3, 3), groups=4), (4 * 6 * 6) * 1 * 9),
    # transposed: input elements, times output channels of the group, times kernel
    "transposed": (
        lambda: torch.conv_transpose2d(f32(1, 4, 5, 5), f32(4, 6, 3, 3), stride=2),
        (4 * 25) * 6 * 9,
    ),
    "transposed_1d": (lambda: torch.conv_transpose1d(f32(2, 4, 5), f32(4, 6, 3)), (2 * 4 * 5) * 6 * 3),
    "transposed_grouped": (
        lambda: torch.conv_transpose2d(f32(1, 4, 5, 5), f32(4, 3, 3, 3), None, 1, 0, 0, 2),
        (4 * 25) * 3 * 9,
    ),
    "time_major": (lambda: torch.conv_tbc(f32(9, 2, 4), f32(3, 4, 6), f32(6)), (7 * 2 * 6) * 3 * 4),
}

ATTENTION = {
    # scores: heads × queries × keys × channels; weighted values: heads × queries × keys × value channels
    "self": (lambda: sdpa(f32(2, 3, 10, 8), f32(2, 3, 10, 8)), 2 * 3 * (10 * 10 * 8) * 2),
    "cross": (lambda: sdpa(f32(2, 3, 10, 8), f32(2, 3, 12, 8)), 2 * 3 * (10 * 12 * 8) * 2),
    "causal_not_halved": (
        lambda: sdpa(f32(2, 3, 10, 8), f32(2, 3, 10, 8), is_causal=True),
        2 * 3 * (10 * 10 * 8) * 2,
    ),
    "masked": (
        lambda: sdpa(f32(2, 3, 10, 8), f32(2, 3, 12, 8), attn_mask=torch.ones(10, 12, dtype=torch.bool)),
        2 * 3 * (10 * 12 * 8) * 2,
    ),
    "dropout": (lambda: sdpa(f32(2, 3, 10, 8), f32(2, 3, 12, 8), dropout_p=0.5), 2 * 3 * (10 * 12 * 8) * 2),
    "grouped_queries": (
        lambda: sdpa(f32(2, 6, 10, 8), f32(2, 3, 12, 8), enable_gqa=True),
        2 * 6 * (10 * 12 * 8) * 2,  # as many heads as queries have
    ),
    "wider_values": (
        lambda: F.scaled_dot_product_attention(f32(2, 3, 10, 8), f32(2, 3, 12, 8), f32(2, 3, 12, 5)),
        2 * 3 * (10 * 12 * 8 + 10 * 12 * 5),
    ),
    "broadcast_batch": (lambda: sdpa(f32(1, 3, 10, 8), f32(2, 3, 12, 8)), 2 * 3 * (10 * 12 * 8) * 2),
    "no_heads": (lambda: sdpa(f32(10, 8), f32(12, 8)), (10 * 12 * 8) * 2),
}


def sdpa(query: Tensor, key: Tensor, **options: Any) -> Tensor:
    return F.scaled_dot_product_attention(query, key, key, **options)


RECURRENT = {
    # steps × batch × gates × hidden × (input + hidden), for each layer and direction
    "rnn_tanh": (lambda: nn.RNN(5, 7)(f32(11, 3, 5)), 33 * 1 * 7 * (5 + 7)),
    "rnn_relu": (lambda: nn.RNN(5, 7, nonlinearity="relu")(f32(11, 3, 5)), 33 * 1 * 7 * (5 + 7)),
    "gru": (lambda: nn.GRU(5, 7)(f32(11, 3, 5)), 33 * 3 * 7 * (5 + 7)),
    "lstm": (lambda: nn.LSTM(5, 7)(f32(11, 3, 5)), 33 * 4 * 7 * (5 + 7)),
    "lstm_no_bias": (lambda: nn.LSTM(5, 7, bias=False)(f32(11, 3, 5)), 33 * 4 * 7 * (5 + 7)),
    "lstm_unbatched": (lambda: nn.LSTM(5, 7)(f32(11, 5)), 11 * 4 * 7 * (5 + 7)),
    "lstm_batch_first": (lambda: nn.LSTM(5, 7, batch_first=True)(f32(3, 11, 5)), 33 * 4 * 7 * (5 + 7)),
    "lstm_2_layers": (lambda: nn.LSTM(5, 7, 2)(f32(11, 3, 5)), 33 * 4 * 7 * ((5 + 7) + (7 + 7))),
    "gru_2_layers": (lambda: nn.GRU(5, 7, 2)(f32(11, 3, 5)), 33 * 3 * 7 * ((5 + 7) + (7 + 7))),
    "rnn_2_layers": (lambda: nn.RNN(5, 7, 2)(f32(11, 3, 5)), 33 * 1 * 7 * ((5 + 7) + (7 + 7))),
    "lstm_bidirectional": (lambda: nn.LSTM(5, 7, bidirectional=True)(f32(11, 3, 5)), 33 * 2 * 28 * (5 + 7)),
    # the second layer reads both directions of the first
    "gru_2_layers_bidirectional": (
        lambda: nn.GRU(5, 7, 2, bidirectional=True)(f32(11, 3, 5)),
        33 * 2 * 21 * ((5 + 7) + (14 + 7)),
    ),
    # a state of 2 is projected from 7 hidden
    "lstm_projection": (lambda: nn.LSTM(5, 7, proj_size=2)(f32(11, 3, 5)), 33 * (28 * (5 + 2) + 2 * 7)),
    # 4 + 2 + 1 steps, not 3 × 4
    "lstm_packed": (lambda: nn.LSTM(5, 7)(packed(4, 2, 1)), 7 * 28 * (5 + 7)),
    "gru_packed": (lambda: nn.GRU(5, 7, 2)(packed(4, 2, 1)), 7 * 21 * ((5 + 7) + (7 + 7))),
    "lstm_cell": (lambda: nn.LSTMCell(5, 7)(f32(3, 5)), 3 * 28 * (5 + 7)),
    "gru_cell": (lambda: nn.GRUCell(5, 7)(f32(3, 5)), 3 * 21 * (5 + 7)),
    "rnn_cell": (lambda: nn.RNNCell(5, 7, bias=False)(f32(3, 5)), 3 * 7 * (5 + 7)),
}


def packed(*lengths: int) -> nn.utils.rnn.PackedSequence:
    return nn.utils.rnn.pack_sequence([f32(length, 5) for length in lengths])


ELEMENTWISE = {
    "add_scalar": (lambda: f32(2, 3) + 1, 6),
    "add_broadcast": (lambda: f32(2, 1, 3) + f32(4, 1), 2 * 4 * 3),
    "add_in_place": (lambda: f32(2, 3).add_(f32(3)), 6),
    "mul_of_int": (lambda: f32(2, 3).long() * 2, 6),
    "rsub": (lambda: 1 - f32(2, 3), 6),
    "rdiv": (lambda: 1 / f32(2, 3), 6),
    "rpow": (lambda: 2 ** f32(2, 3), 6),
    "eq": (lambda: f32(2, 3) == 0, 6),
    "invert": (lambda: ~torch.ones(2, 3, dtype=torch.bool), 6),
    "relu": (lambda: torch.relu(f32(2, 3)), 6),
    "relu_in_place": (lambda: torch.relu_(f32(2, 3)), 6),
    "gelu": (lambda: F.gelu(f32(2, 3)), 6),
    "hardswish": (lambda: torch._C._nn.hardswish(f32(2, 3)), 6),
    "glu": (lambda: torch._C._nn.glu(f32(2, 6), -1), 2 * 3),
    "where": (lambda: torch.where(torch.ones(2, 3, dtype=torch.bool), 0.0, f32(3)), 6),
    "masked_fill": (lambda: f32(2, 3).masked_fill(torch.ones(3, dtype=torch.bool), 1.0), 6),
    "addcmul": (lambda: torch.addcmul(f32(2, 3), f32(3), f32(2, 1)), 6),
    "outer": (lambda: torch.outer(f32(2), f32(3)), 6),
    "maximum_of_two": (lambda: torch.max(f32(2, 3), f32(4, 1, 3)), 4 * 2 * 3),
    "softmax": (lambda: torch.softmax(f32(2, 3), -1), 6),
    "layer_norm": (lambda: torch.layer_norm(f32(2, 3), [3], f32(3), f32(3)), 6),
    "batch_norm": (
        lambda: torch.batch_norm(f32(2, 3, 4), None, None, f32(3), f32(3), True, 0.1, 1e-5, False),
        24,
    ),
    "group_norm": (lambda: torch.group_norm(f32(2, 4, 3), 2), 24),
    "dropout": (lambda: torch.dropout(f32(2, 3), 0.5, True), 6),
    "complex": (lambda: f32(2, 3).cfloat() * 2, 6),
    "two_outputs": (lambda: torch.frexp(f32(2, 3)), 6),
    "out": (lambda: torch.add(BATCH, 1, out=BATCH_OUT), 18),
    "lists": (lambda: torch._foreach_add([f32(2, 3), f32(4)], 1.0), 6 + 4),
    "lists_in_place": (lambda: torch._foreach_mul_([f32(2, 3), f32(4)], 2.0), 6 + 4),
    "scalar_tensor": (lambda: torch.exp(torch.tensor(1.0)), 1),
}

REDUCTIONS = {
    "sum": (lambda: f32(2, 3).sum(), 6),
    "mean_of_dim": (lambda: torch.mean(f32(2, 3, 4), dim=1, keepdim=True), 24),
    "sum_keyword": (lambda: torch.sum(input=f32(2, 3), dim=0), 6),
    "max": (lambda: f32(2, 3).max(), 6),
    "max_of_dim": (lambda: torch.max(f32(2, 3), 0), 6),
    "argmax": (lambda: f32(2, 3).argmax(), 6),
    "std": (lambda: torch.std(f32(2, 3), 1), 6),
    "norm": (lambda: torch.linalg.vector_norm(f32(2, 3)), 6),
    "logsumexp": (lambda: torch.logsumexp(f32(2, 3), 1), 6),
    "cumsum": (lambda: torch.cumsum(f32(2, 3), 1), 6),
    "cross_entropy": (lambda: torch._C._nn.cross_entropy_loss(f32(2, 3), torch.tensor([0, 1])), 6),
    "mse_loss": (lambda: torch._C._nn.mse_loss(f32(2, 3), f32(2, 3)), 6),
    "trace": (lambda: torch.trace(f32(2, 3)), 2),
    "einsum_of_a_diagonal": (lambda: torch._VF.einsum("ii->", [f32(3, 3)]), 3),
    # one window for each output element
    "max_pool": (lambda: torch.max_pool2d(f32(1, 2, 8, 8), 2), (2 * 4 * 4) * 4),
    "max_pool_overlapping": (lambda: torch.max_pool2d(f32(1, 2, 8, 8), 3, 2, 1), (2 * 4 * 4) * 9),
    "max_pool_indices": (lambda: torch._C._nn.max_pool2d_with_indices(f32(2, 8, 8), [2, 4]), (2 * 4 * 2) * 8),
    "avg_pool": (lambda: torch._C._nn.avg_pool2d(f32(1, 2, 8, 8), (2, 4)), (2 * 4 * 2) * 8),
    "adaptive_pool_to_one": (lambda: torch._C._nn.adaptive_avg_pool2d(f32(1, 2, 7, 7), 1), 2 * 49),
    # 7 in 3 windows: 0-3, 2-5, 4-7 are 9 elements
    "adaptive_pool_uneven": (lambda: torch.adaptive_avg_pool1d(f32(2, 7), 3), 2 * 9),
    "embedding_bag": (lambda: torch.embedding_bag(f32(9, 4), torch.arange(6), torch.tensor([0, 2])), 6 * 4),
    "scatter_add": (lambda: f32(5).scatter_add(0, torch.tensor([0, 0, 1]), f32(4)), 3),
    "index_add": (lambda: f32(5, 2).index_add_(0, torch.tensor([0, 0, 1]), f32(3, 2)), 6),
}

FREE = {
    "view": lambda: f32(2, 3).view(6),
    "reshape_that_copies": lambda: f32(2, 3).mT.reshape(6),
    "transpose": lambda: f32(2, 3).transpose(0, 1),
    "transpose_in_place": lambda: f32(2, 3).t_(),
    "squeeze_in_place": lambda: f32(2, 1).squeeze_(),
    "expand": lambda: f32(1, 3).expand(4, 3),
    "split": lambda: torch._VF.split(f32(4, 3), 2),
    "chunk": lambda: f32(4, 3).chunk(2),
    "unbind": lambda: f32(4, 3).unbind(),
    "detach": lambda: f32(3).detach(),
    "getitem": lambda: f32(2, 3)[0],
    "getitem_of_mask": lambda: torch.Tensor.__getitem__(f32(2, 3), MASK),
    "setitem": lambda: f32(2, 3).__setitem__(0, 1.0),
    "clone": lambda: f32(2, 3).clone(),
    "contiguous": lambda: f32(2, 3).contiguous(),
    "copy": lambda: f32(2, 3).copy_(f32(3)),
    "to_dtype": lambda: f32(2, 3).to(torch.float16),
    "to_device": lambda: f32(2, 3).to("meta"),
    "double": lambda: f32(2, 3).double(),
    "cpu": lambda: f32(2, 3).cpu(),
    "cat": lambda: torch.cat([f32(2, 3), f32(1, 3)]),
    "stack": lambda: torch.stack([f32(2, 3), f32(2, 3)]),
    "pad": lambda: F.pad(f32(2, 3), (1, 1)),
    "gather": lambda: f32(2, 3).gather(1, torch.zeros(2, 1, dtype=torch.long)),
    "embedding": lambda: torch.embedding(f32(9, 4), torch.arange(3)),
    "scatter": lambda: f32(5).scatter(0, torch.tensor([0, 1]), 1.0),
    "zeros": lambda: torch.zeros(2, 3),
    "arange": lambda: torch.arange(4),
    "tensor": lambda: torch.tensor([1.0, 2.0]),
    "randn": lambda: torch.randn(2, 3),
    "ones_like": lambda: torch.ones_like(BATCH),
    "new_zeros": lambda: BATCH.new_zeros(3),
    "fill": lambda: f32(2, 3).fill_(1.0),
    "zero": lambda: f32(2, 3).zero_(),
    "normal_in_place": lambda: f32(2, 3).normal_(),
    "dropout_in_eval": lambda: torch.dropout(f32(2, 3), 0.5, False),
    "einsum_of_a_transpose": lambda: torch._VF.einsum("ij->ji", [f32(2, 3)]),
    "view_of_nothing": lambda: f32(0, 3).view(3, 0),
    "upsample_by_copying": lambda: torch._C._nn.upsample_nearest2d(f32(1, 1, 2, 2), [4, 4]),
}


def counted(cases: dict[str, tuple[Callable[[], object], int]]) -> Any:
    return pytest.mark.parametrize(("run", "number"), list(cases.values()), ids=list(cases))


@counted(MATRIX_PRODUCTS | CONVOLUTIONS | ATTENTION)
def test_multiply_adds_count_two_flops_each(run: Callable[[], object], number: int) -> None:
    assert count(*last_call(run)) == Cost(2 * number, number, None)


@counted(RECURRENT)
def test_recurrent_layers_count_their_matrices_at_every_step(run: Callable[[], object], number: int) -> None:
    names = ("lstm", "gru", "rnn_tanh", "rnn_relu")
    (call,) = [call for call in calls_of(run) if call.name.removesuffix("_cell") in names]
    assert count(*call) == Cost(2 * number, number, None)


@counted(ELEMENTWISE | REDUCTIONS)
def test_elementwise_and_reductions_count_one_flop_an_element(run: Callable[[], object], number: int) -> None:
    assert count(*last_call(run)) == Cost(number, 0, None)


@pytest.mark.parametrize("run", list(FREE.values()), ids=list(FREE))
def test_views_copies_and_factories_are_a_known_zero(run: Callable[[], object]) -> None:
    assert count(*last_call(run)) == Cost(0, 0, None)


@pytest.mark.parametrize("name", ["T", "mT", "data", "real"])
def test_attributes_that_give_a_tensor_are_views(name: str) -> None:
    call = last_call(lambda: getattr(f32(2, 3), name))
    assert call.name == "__get__"
    assert count(*call) == Cost(0, 0, None)


def test_attribute_writes_are_free() -> None:
    call = last_call(lambda: setattr(f32(2, 3), "data", f32(2, 3)))
    assert call.name == "__set__"
    assert count(*call) == Cost(0, 0, None)


# a batch of 2 with 10 tokens of 8 channels: projections in (8 to 24) and out (8 to 8), 2 heads of 4 channels
MHA_MACS = 2 * 10 * 8 * 24 + 2 * 10 * 8 * 8 + 2 * 2 * (10 * 10 * 4) * 2


def test_attention_module_adds_up_from_its_pieces() -> None:
    module = nn.MultiheadAttention(8, 2, batch_first=True)
    x = f32(2, 10, 8)
    pieces = calls_of(lambda: module(x, x, x, need_weights=False), enter=True)
    products = [(call.name, count(*call).macs) for call in pieces if count(*call).macs]
    assert products == [
        ("linear", 2 * 10 * 8 * 24),
        ("scaled_dot_product_attention", 2 * 2 * (10 * 10 * 4) * 2),
        ("linear", 2 * 10 * 8 * 8),
    ]


def test_attention_module_with_weights_adds_up_from_its_pieces() -> None:
    module = nn.MultiheadAttention(8, 2, batch_first=True)
    x = f32(2, 10, 8)
    pieces = calls_of(lambda: module(x, x, x), enter=True)
    products = [(call.name, count(*call).macs) for call in pieces if count(*call).macs]
    assert products == [
        ("linear", 2 * 10 * 8 * 24),
        ("bmm", 2 * 2 * 10 * 10 * 4),
        ("bmm", 2 * 2 * 10 * 10 * 4),
        ("linear", 2 * 10 * 8 * 8),
    ]


def fused_kernel(run: Callable[[], object], name: str) -> Call:
    with torch.no_grad(), Kernels() as kernels:
        run()
    (call,) = [call for call in kernels.calls if name in str(call.func)]
    return call


def test_fused_attention_kernel() -> None:
    module = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    x = f32(2, 10, 8)
    call = fused_kernel(lambda: module(x, x, x), "_native_multi_head_attention")
    assert count(*call) == Cost(2 * MHA_MACS, MHA_MACS, None)


@pytest.mark.parametrize("norm_first", [False, True])
def test_fused_encoder_kernel(norm_first: bool) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 32, batch_first=True, norm_first=norm_first).eval()
    x = f32(2, 10, 8)
    call = fused_kernel(lambda: layer(x), "_transformer_encoder_layer_fwd")
    macs = MHA_MACS + 2 * 10 * 8 * 32 * 2  # 8 to 32 and back
    assert count(*call) == Cost(2 * macs, macs, None)


def test_fused_encoder_kernel_of_padded_sequences_counts_each_at_its_length() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 32, batch_first=True).eval()
    encoder = nn.TransformerEncoder(layer, 1).eval()
    padding = torch.zeros(2, 10, dtype=torch.bool)
    padding[1, 6:] = True  # lengths 10 and 6
    call = fused_kernel(lambda: encoder(f32(2, 10, 8), src_key_padding_mask=padding), "_encoder_layer_fwd")
    assert call.args[0].is_nested
    linear = (10 + 6) * (8 * 24 + 8 * 8 + 8 * 32 * 2)
    scores = (10 * 10 + 6 * 6) * 8 * 2
    assert count(*call) == Cost(2 * (linear + scores), linear + scores, None)


@pytest.mark.parametrize("autocast", [torch.bfloat16, torch.float16])
def test_mixed_types_that_autocast_allows(autocast: torch.dtype) -> None:
    with torch.autocast("cpu", dtype=autocast):
        run = lambda: torch.conv2d(f32(1, 4, 8, 8).to(autocast), f32(6, 4, 3, 3), f32(6))
        call = last_call(run)
    assert count(*call).macs == (6 * 6 * 6) * 4 * 9


class NotKnown(NamedTuple):
    run: Callable[[], object]
    reason: str


NOT_KNOWN = {
    "factorisation": NotKnown(lambda: torch.linalg.svd(f32(3, 3)), "`_linalg_svd`"),
    "solve": NotKnown(lambda: torch.linalg.solve(torch.eye(3), f32(3)), "`_linalg_solve_ex`"),
    # two products are there, but the inverse before them is not known
    "negative_power": NotKnown(lambda: torch.linalg.matrix_power(torch.eye(3), -3), "`linalg_inv_ex`"),
    "fourier": NotKnown(lambda: torch.fft.fft(f32(8)), "`_fft_r2c`"),
    "sort": NotKnown(lambda: torch.sort(f32(8)), "`sort`"),
    "topk": NotKnown(lambda: torch.topk(f32(8), 2), "`topk`"),
    "interpolation": NotKnown(
        lambda: torch._C._nn.upsample_bilinear2d(f32(1, 1, 2, 2), [4, 4], False), "`upsample_bilinear2d`"
    ),
    "distances_without_product": NotKnown(
        lambda: torch._VF.cdist(f32(3, 4), f32(5, 4), 2.0, None), "`_cdist_forward`"
    ),
    "needs_data": NotKnown(lambda: torch.argwhere(f32(3)), "cannot be run without data"),
    "accumulated_by_index": NotKnown(
        lambda: f32(3).index_put_([torch.tensor([0, 0])], torch.tensor(1.0), True), "its indices select"
    ),
    "sparse_product": NotKnown(lambda: torch.mm(torch.eye(3).to_sparse(), f32(3, 3)), "sparse"),
    "sparse_elementwise": NotKnown(lambda: SPARSE * 2, "sparse"),
    "empty_product": NotKnown(lambda: torch.mm(f32(0, 3), f32(3, 5)), "no elements"),
    "empty_contraction": NotKnown(lambda: torch.mm(f32(2, 0), f32(0, 5)), "no elements"),
    "empty_linear": NotKnown(lambda: F.linear(f32(0, 3), f32(5, 3)), "no elements"),
    "empty_convolution": NotKnown(lambda: torch.conv1d(f32(0, 4, 10), f32(6, 4, 3)), "no elements"),
    "empty_elementwise": NotKnown(lambda: torch.relu(f32(0, 3)), "no elements"),
    "empty_reduction": NotKnown(lambda: f32(0, 3).sum(), "no elements"),
}
SPARSE = torch.eye(3).to_sparse()


@pytest.mark.parametrize("case", list(NOT_KNOWN.values()), ids=list(NOT_KNOWN))
def test_anything_else_says_why(case: NotKnown) -> None:
    cost = count(*last_call(case.run))
    assert (cost.flops, cost.macs) == (None, None)
    assert cost.reason is not None
    assert case.reason in cost.reason
    assert cost.reason.endswith(".")


def raises(*_: object) -> None:
    raise RuntimeError("not to be run")


class Callable_:
    def __call__(self, x: Tensor) -> Tensor:
        return x


@pytest.mark.parametrize(
    "func",
    [raises, Callable_(), "relu", None, nn.init.normal_, torch.save, torch.distributed.all_reduce, len, 7],
    ids=repr,
)
def test_what_is_no_function_of_torch_is_not_run(func: object) -> None:
    cost = count(func, (f32(3),), {}, f32(3))
    assert cost.flops is None
    assert cost.reason is not None
    assert "is no function of torch's" in cost.reason


@pytest.mark.parametrize(
    "func", [torch.einsum, torch.matmul, F.linear, torch.relu, torch.max_pool2d, torch.lstm]
)
@pytest.mark.parametrize(
    "args",
    [(), (None,), ("a", 3), (object(),), ([[]],), (Opaque("Odd", "<Odd>"),), ({"a": {1}},)],
    ids=["none", "None", "scalars", "object", "lists", "opaque", "dict"],
)
def test_impossible_arguments_are_a_reason(func: Any, args: tuple[object, ...]) -> None:
    cost = count(func, args, None, None)
    assert cost.flops is None
    assert cost.reason


def test_argument_that_was_not_kept_is_named() -> None:
    cost = count(torch.einsum, (Opaque("Odd", "<Odd>"), [f32(3)]), {}, f32(3))
    assert cost.reason == "It has an argument of type `Odd`, which a run without data cannot be given."


@pytest.fixture
def library() -> Any:
    with torch.library._scoped_library("flops_test", "FRAGMENT") as library:
        yield library


def test_custom_operator_is_unknown_until_a_formula_is_registered(
    library: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    library.define("triple(Tensor x) -> Tensor")
    library.impl("triple", lambda x: x * 3, "CPU")
    call = last_call(lambda: torch.ops.flops_test.triple(f32(2, 3)))
    cost = count(*call)
    assert cost.flops is None
    assert cost.reason is not None
    assert cost.reason.startswith("`flops_test.triple` is a custom operator")
    monkeypatch.setattr(flop_counter, "flop_registry", dict(flop_counter.flop_registry))
    flop_counter.register_flop_formula(torch.ops.flops_test.triple)(lambda x, out_shape, **_: 10 * x[0])
    assert count(*call) == Cost(20, 10, None)
    assert count(torch.ops.flops_test.triple.default, *call[1:]) == Cost(20, 10, None)


def test_custom_operator_counts_by_its_tag(library: Any) -> None:
    library.define("twice(Tensor x) -> Tensor", tags=(torch.Tag.pointwise,))
    library.impl("twice", lambda x: x * 2, "CPU")
    assert count(*last_call(lambda: torch.ops.flops_test.twice(f32(2, 3)))) == Cost(6, 0, None)


COMPOSITIONS = {
    # beyond 25 rows torch takes one product with two more coordinates
    "cdist_by_product": (lambda: torch._VF.cdist(f32(30, 4), f32(40, 4), 2.0, None), 2 * 30 * 40 * (4 + 2)),
    # a python function that was not entered: its products alone
    "attention_function": (lambda: attention_function(f32(2, 10, 8)), 2 * MHA_MACS),
    # differences and their norm: 6 in, 6 through
    "pairwise_distance": (lambda: torch.pairwise_distance(f32(2, 3), f32(2, 3), eps=0), 6 + 6 + 6),
    # the sum of each row, less half of its first and last element, times the step
    "trapezoid": (lambda: torch.trapezoid(f32(2, 3)), 6 + (2 + 2) + 2 + 2),
}


def attention_function(x: Tensor) -> object:
    module = nn.MultiheadAttention(8, 2, batch_first=True)
    options = {"need_weights": True}
    x = x.transpose(0, 1)
    parameters = (module.in_proj_weight, module.in_proj_bias, None, None, False, 0.0)
    return F.multi_head_attention_forward(
        x, x, x, 8, 2, *parameters, module.out_proj.weight, module.out_proj.bias, **options
    )


ORACLE = MATRIX_PRODUCTS | CONVOLUTIONS | ATTENTION | RECURRENT
TORCH_GIVES_ZERO = {
    *("matmul_vector", "vector_vector", "dot", "vdot", "vecdot", "mv", "addmv", "addr", "addbmm"),
    *("bilinear", "time_major", "linear_to_scalar", "addmm_in_place", "baddbmm_in_place"),
}
NOT_ON_META = {"lstm_packed", "gru_packed"}


def run_python(*arguments: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, check=True, timeout=300, stdout=subprocess.PIPE, text=True, env=environment
    )
    return done.stdout


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    """What `measure` prints, in a process of its own: torch's counter loads the compiler."""
    return json.loads(run_python(__file__))


def measure() -> None:
    totals = {}
    for name, (run, _) in ORACLE.items():
        if name not in NOT_ON_META:
            with torch.device("meta"), flop_counter.FlopCounterMode(display=False) as counter:
                run()
            totals[name] = counter.get_total_flops()
    flops = {name: count(*last_call(run)).flops for name, (run, _) in COMPOSITIONS.items()}
    print(json.dumps({"torch": totals, "compositions": flops}))


@pytest.mark.parametrize("name", sorted(ORACLE.keys() - TORCH_GIVES_ZERO - NOT_ON_META))
def test_torchs_counter_gives_the_same_on_meta_tensors(name: str, measured: dict[str, Any]) -> None:
    assert measured["torch"][name] == 2 * ORACLE[name][1]


@pytest.mark.parametrize("name", sorted(TORCH_GIVES_ZERO))
def test_torchs_counter_gives_nothing_for_these(name: str, measured: dict[str, Any]) -> None:
    assert measured["torch"][name] == 0


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_compositions_cost_what_they_are_made_of(name: str, measured: dict[str, Any]) -> None:
    assert measured["compositions"][name] == COMPOSITIONS[name][1]


def test_large_tensors_are_not_copied_or_allocated() -> None:
    huge = torch.zeros(1).expand(1 << 20, 1 << 20)  # 4 TiB if it were real
    assert count(torch.mm, (huge, huge), {}, huge).macs == 1 << 60
    assert count(torch.relu, (huge,), {}, huge).flops == 1 << 40


@counted(MATRIX_PRODUCTS | CONVOLUTIONS | ATTENTION | ELEMENTWISE | REDUCTIONS)
def test_nothing_is_altered(run: Callable[[], object], number: int) -> None:
    call = last_call(run)
    tensors = [t for t in (*call.args, *call.kwargs.values(), call.out) if isinstance(t, Tensor)]
    before = [(t._version, t.shape, t.stride(), t.device, t.requires_grad) for t in tensors]
    state = torch.get_rng_state()
    count(*call)
    assert [(t._version, t.shape, t.stride(), t.device, t.requires_grad) for t in tensors] == before
    assert torch.equal(torch.get_rng_state(), state)


def test_function_that_would_draw_random_numbers_is_stopped() -> None:
    state = torch.get_rng_state()
    cost = count(
        F.fractional_max_pool2d, (f32(1, 1, 8, 8).to("meta"), 2), {"output_size": 4}, f32(1, 1, 4, 4)
    )
    assert torch.equal(torch.get_rng_state(), state)
    assert cost.flops is None or cost.flops == 16 * 4


def test_modes_of_the_caller_see_nothing() -> None:
    x, w = f32(1, 4, 8, 9), f32(6, 4, 3, 3)
    with Recorder() as functions, Kernels() as kernels:
        assert count(torch.conv2d, (x, w), {}, None).macs == (6 * 6 * 7) * 4 * 9
        assert count(torch.relu, (x,), {}, x).flops == 4 * 8 * 9
    assert functions.calls == []
    assert kernels.calls == []


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_gradient_modes_make_no_difference(mode: Callable[[], Any]) -> None:
    with mode():
        x, w = f32(2, 3, 10), nn.Parameter(f32(5, 10))
        assert count(torch._VF.einsum, ("btc,dc->btd", [x, w]), {}, None).macs == 2 * 3 * 5 * 10
        assert count(torch.matmul, (x, w.mT), {}, x @ w.mT).macs == 2 * 3 * 5 * 10
        assert torch.is_grad_enabled() == (mode is torch.enable_grad)


def test_equal_shapes_are_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    formula = flop_counter.flop_registry[torch.ops.aten.bmm]

    def spy(*args: Any, **kwargs: Any) -> Any:
        runs.append(args[0].shape)
        return formula(*args, **kwargs)

    monkeypatch.setitem(flop_counter.flop_registry, torch.ops.aten.bmm, spy)
    for _ in range(3):
        assert count(torch.bmm, (f32(13, 2, 3), f32(13, 3, 5)), {}, None).macs == 13 * 2 * 3 * 5
    assert count(torch.bmm, (f32(13, 2, 4), f32(13, 4, 5)), {}, None).macs == 13 * 2 * 4 * 5
    assert runs == [(13, 2, 3), (13, 2, 4)]


def test_nothing_is_kept_alive() -> None:
    x = f32(2, 3, 17)

    def func(x: Tensor) -> Tensor:
        return x

    kept = weakref.ref(x), weakref.ref(func)
    count(torch.bmm, (x, x.mT), {}, None)
    count(func, (x,), {}, x)
    count(torch.relu, (x,), {}, x)
    del x, func
    gc.collect()
    assert [ref() for ref in kept] == [None, None]


def test_models_on_other_threads_run_none_of_our_hooks() -> None:
    before = {**nn.modules.module._global_forward_hooks}, {**nn.modules.module._global_forward_pre_hooks}
    seen: list[bool] = []
    original = flop_counter.flop_registry[torch.ops.aten.bmm]

    def look(*args: Any, **kwargs: Any) -> Any:
        thread = threading.Thread(
            target=lambda: seen.append(
                before
                == (
                    {**nn.modules.module._global_forward_hooks},
                    {**nn.modules.module._global_forward_pre_hooks},
                )
            )
        )
        thread.start()
        thread.join()
        return original(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(flop_counter.flop_registry, torch.ops.aten.bmm, look)
        assert count(torch.bmm, (f32(19, 2, 3), f32(19, 3, 5)), {}, None).macs == 19 * 2 * 3 * 5
    assert seen == [True]


def test_counting_a_usual_model_does_not_load_the_compiler() -> None:
    script = """
import sys, torch, torch.nn.functional as F
from torchlens.flops import count
z = torch.zeros
calls = [
    (F.linear, (z(2, 3), z(5, 3), z(5)), 30), (torch.addmm, (z(5), z(2, 3), z(3, 5)), 30),
    (torch.matmul, (z(2, 3), z(3)), 6), (torch.bmm, (z(7, 2, 3), z(7, 3, 5)), 210),
    (torch.conv2d, (z(1, 4, 8, 8), z(6, 4, 3, 3), z(6)), 7776),
    (torch._VF.einsum, ("ij,jk->ik", [z(2, 3), z(3, 5)]), 30),
]
for func, args, macs in calls:
    assert count(func, args, {}, func(*args)).macs == macs, func
q = z(1, 2, 3, 4)
assert count(F.scaled_dot_product_attention, (q, q, q), {}, q).macs == 2 * 3 * 3 * 4 * 2
assert "torch._dynamo" not in sys.modules
"""
    assert run_python("-c", script) == ""


if __name__ == "__main__":
    measure()
