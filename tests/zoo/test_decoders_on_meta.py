"""Decoders as wide as the largest published ones, on meta: a few layers of them, at no memory."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest
import torch
from torch import nn

import torchlens as tl
from tests.programs.memory import MIB, resident_peak
from tests.programs.reading import lint


def decoder(kind: str, layers: int) -> tuple[nn.Module, Any]:
    transformers = pytest.importorskip("transformers")
    sizes = dict(num_hidden_layers=layers, num_attention_heads=64, num_key_value_heads=8)
    if kind == "llama":  # the widths of the 70-billion-parameter one
        config = transformers.LlamaConfig(
            hidden_size=8192, intermediate_size=28672, vocab_size=128256, **sizes
        )
        make = transformers.LlamaForCausalLM
    else:
        config = transformers.MixtralConfig(
            hidden_size=4096, intermediate_size=14336, vocab_size=32000, **sizes
        )
        make = transformers.MixtralForCausalLM
    with torch.device("meta"):
        return make(config).eval().to(torch.bfloat16), config


@pytest.mark.parametrize("kind", ["llama", "mixtral"])
def test_a_large_decoder(kind: str) -> None:
    layers, tokens = 2, 128
    model, config = decoder(kind, layers)
    before = resident_peak()
    # with no mask, or one by tokens, transformers asks for values, which meta tensors do not have
    mask = torch.empty(1, 1, tokens, tokens, device="meta", dtype=torch.bfloat16)
    inputs = {
        "input_ids": torch.empty(1, tokens, device="meta", dtype=torch.long),
        "attention_mask": mask,
        "use_cache": False,
    }
    with torch.no_grad():
        trace = tl.trace(model, (), input_kwargs=inputs)
    text = str(trace.summary())
    assert resident_peak() - before < 300 * MIB
    lint(trace)
    assert trace.provenance.verified and trace.copied_bytes == 0
    params = sum(param.numel for param in trace.params)
    assert params == sum(parameter.numel() for parameter in model.parameters()) > 10**9
    assert trace.output["logits"].shape == (1, tokens, config.vocab_size)
    products = [op for op in trace.ops if op.type == "linear"]
    assert all(op.flops == 2 * tokens * prod(op.params[0].shape) for op in products)
    assert "0 B kept" in text
    assert trace.graph.number_of_nodes() == len(trace.ops)
