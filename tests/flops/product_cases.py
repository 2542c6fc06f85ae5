"""Matrix products, convolutions, attention and recurrent layers, with their multiply-adds by hand."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.flops.recording import BATCH, BATCH_OUT, Cases, f32

MATRIX_PRODUCTS: Cases = {
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
CONVOLUTIONS: Cases = {
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

ATTENTION: Cases = {
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


RECURRENT: Cases = {
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


# a batch of 2 with 10 tokens of 8 channels: projections in (8 to 24) and out (8 to 8), 2 heads of 4 channels
MHA_MACS = 2 * 10 * 8 * 24 + 2 * 10 * 8 * 8 + 2 * 2 * (10 * 10 * 4) * 2
