"""`fused="keep"` gives the numbers of a run without a capture; `fused="expand"` shows what is inside."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests.programs.agreement import agrees, assert_same_bits
from tests.programs.reading import floats
from torchlens.errors import OptionError

pytestmark = pytest.mark.filterwarnings("ignore:.*[Nn]ested tensors")

KERNEL = "_transformer_encoder_layer_fwd"
PADDING = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
CAUSAL = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)


def autocast_without_gradients() -> AbstractContextManager[Any]:
    stack = ExitStack()
    stack.enter_context(torch.no_grad())
    stack.enter_context(torch.autocast("cpu", torch.bfloat16))
    return stack


CONTEXTS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "no grad": torch.no_grad,
    "inference": torch.inference_mode,
    "grad": nullcontext,
    "autocast": autocast_without_gradients,
}
OF_ONE_TYPE = [name for name in CONTEXTS if name != "autocast"]


class Encoder(nn.Module):
    """Two encoder layers, called in a context with a mask."""

    def __init__(self, context: str, mask: str, nested: bool, **options: Any) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(12, dim_feedforward=16, **options)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested)
        self.context, self.mask = context, mask
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        masks = {"mask": CAUSAL} if self.mask in ("causal", "both") else {}
        padding = {"src_key_padding_mask": PADDING} if self.mask in ("padding", "both") else {}
        with CONTEXTS[self.context]():
            return self.encoder(x, **masks, **padding)


CASES = [
    (batch_first, norm_first, heads, mask, context, nested)
    for batch_first, norm_first, heads, mask, context in itertools.product(
        [True, False], [False, True], [4, 3], ["none", "causal", "padding", "both"], OF_ONE_TYPE
    )
    for nested in ([True, False] if mask == "padding" else [True])
]


def fuses(batch_first: bool, heads: int, context: str) -> bool:
    return batch_first and heads % 2 == 0 and context != "grad"


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize(
    ("batch_first", "norm_first", "heads", "mask", "context", "nested"),
    CASES,
    ids=lambda value: str(value),
)
def test_both_ways(
    batch_first: bool, norm_first: bool, heads: int, mask: str, context: str, nested: bool
) -> None:
    options = dict(nhead=heads, batch_first=batch_first, norm_first=norm_first)

    def build() -> Encoder:
        torch.manual_seed(0)
        return Encoder(context, mask, nested, **options)

    x = floats(2, 5, 12) if batch_first else floats(5, 2, 12)
    kept = agrees(build, x, checked=False, rendered=False, grad=context == "grad")
    expanded = tl.trace(build(), x, capture=tl.options.CaptureOptions(fused="expand"))
    fused = fuses(batch_first, heads, context)
    kernels = [op for op in kept.ops if op.kind == "boundary"]
    assert [op.func_name for op in kernels] == [KERNEL] * (2 if fused else 0)
    assert [op.module.address for op in kernels] == [f"encoder.layers.{n}" for n in range(len(kernels))]
    assert kept.modules["encoder.layers.0.linear1"].num_calls == (0 if fused else 1)
    assert [op.func_name for op in expanded.ops if op.kind == "boundary"] == []
    assert expanded.modules["encoder.layers.0.linear1"].num_calls == 1
    assert expanded.modules["encoder.layers.1.self_attn"].num_calls == 1
    notes = [note for note in expanded.notes if "last bits" in note]
    assert len(notes) == (1 if fused else 0)
    if fused:
        assert notes[0].startswith("TransformerEncoderLayer ran what is written in Python")
    assert kept.notes == ()
    rows = ~PADDING if mask in ("padding", "both") else torch.ones(2, 5, dtype=torch.bool)
    one, other = (t.output if batch_first else t.output.transpose(0, 1) for t in (kept, expanded))
    torch.testing.assert_close(one[rows], other[rows], rtol=1e-5, atol=1e-5)
    if not fused:
        assert_same_bits(expanded.output, kept.output)


@pytest.mark.parametrize("mask", ["none", "causal", "both"])
def test_under_autocast_the_kernel_gives_another_type(mask: str) -> None:
    def build() -> Encoder:
        torch.manual_seed(0)
        return Encoder("autocast", mask, True, nhead=4, batch_first=True)

    kept = agrees(build, floats(2, 5, 12), checked=False)
    options = tl.options.CaptureOptions(fused="expand")
    expanded = tl.trace(build(), floats(2, 5, 12), capture=options)
    assert (kept.output.dtype, expanded.output.dtype) == (torch.bfloat16, torch.float32)
    assert "in the last bits and, under autocast, in its type" in " ".join(expanded.notes)


def layer() -> nn.TransformerEncoderLayer:
    torch.manual_seed(0)
    return nn.TransformerEncoderLayer(12, 4, 16, batch_first=True).eval()


def expand(model: nn.Module, *inputs: Any) -> Any:
    with torch.no_grad():
        return tl.trace(model, inputs, capture=tl.options.CaptureOptions(fused="expand"))


def test_attention_by_itself_is_expanded() -> None:
    attention = nn.MultiheadAttention(12, 4, batch_first=True).eval()
    x = floats(2, 5, 12)
    trace = expand(attention, x, x, x)
    assert "scaled_dot_product_attention_1" in trace or "softmax_1" in trace
    assert [note.split()[0] for note in trace.notes] == ["MultiheadAttention"]


def test_padded_positions_that_were_not_packed_are_noted() -> None:
    encoder = nn.TransformerEncoder(layer(), 2).eval()
    with torch.no_grad():
        options = tl.options.CaptureOptions(fused="expand")
        trace = tl.trace(
            encoder, floats(2, 5, 12), input_kwargs={"src_key_padding_mask": PADDING}, capture=options
        )
    assert any(note.startswith("TransformerEncoder did not pack its padded input") for note in trace.notes)


def test_a_nested_input_keeps_the_kernel_as_torch_has_no_other_way() -> None:
    nested = torch.nested.as_nested_tensor([floats(3, 12), floats(5, 12)])
    trace = expand(layer(), nested)
    assert [op.func_name for op in trace.ops if op.kind == "boundary"] == [KERNEL]
    assert trace.notes == ()


def test_the_option_stands_in_the_trace() -> None:
    assert tl.trace(layer(), floats(2, 5, 12)).options.fused == "keep"
    assert expand(layer(), floats(2, 5, 12)).options.fused == "expand"


@pytest.mark.parametrize("value", ["open", None, True, "Expand"])
def test_another_value_is_an_error(value: Any) -> None:
    with pytest.raises(OptionError, match=r"give 'keep'.* or 'expand'"):
        tl.options.CaptureOptions(fused=value)


def test_stepping_inside_leaves_nothing_for_the_collector() -> None:
    model, x = layer(), floats(2, 5, 12)
    expand(model, x)
    gc.collect()
    gc.disable()
    try:
        expand(model, x)
        assert gc.collect() == 0
    finally:
        gc.enable()
