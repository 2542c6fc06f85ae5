"""Counts against arithmetic by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from tests.flops.element_cases import ELEMENTWISE, FREE, REDUCTIONS
from tests.flops.product_cases import ATTENTION, CONVOLUTIONS, MATRIX_PRODUCTS, MHA_MACS, RECURRENT
from tests.flops.recording import Call, Kernels, calls_of, counted, f32, last_call
from torchlens.flops import Cost, count


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
