"""Layers with 8- and 4-bit weights, on the CPU kernels of bitsandbytes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests.programs.reading import op_labels
from tests.wrapped.agreement import agreeing
from tests.wrapped.packages import package
from torchlens.errors import OverwrittenError

bitsandbytes = package("bitsandbytes")


def inputs(dtype: torch.dtype) -> Tensor:
    return torch.linspace(-3, 3, 3 * 64).reshape(3, 64).to(dtype)


def with_first_layer(first: nn.Module, dtype: torch.dtype) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        plain = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8)).to(dtype)
    model = nn.Sequential(first, nn.ReLU(), nn.Linear(32, 8).to(dtype))
    model.load_state_dict(plain.state_dict(), strict=False)
    return model.to("cpu").eval()  # moving is what quantises


def eight_bit(dtype: torch.dtype, threshold: float) -> nn.Module:
    layer = bitsandbytes.nn.Linear8bitLt(64, 32, has_fp16_weights=False, threshold=threshold)
    return with_first_layer(layer, dtype)


def four_bit(kind: str, compressed: bool) -> nn.Module:
    layer = bitsandbytes.nn.Linear4bit(
        64, 32, compute_dtype=torch.float32, quant_type=kind, compress_statistics=compressed
    )
    return with_first_layer(layer, torch.float32)


@pytest.mark.parametrize("threshold", [0.0, 6.0], ids=["no outliers", "outliers looked for"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_eight_bits(dtype: torch.dtype, threshold: float) -> None:
    first, second = agreeing(lambda: eight_bit(dtype, threshold), inputs(dtype))
    assert first["relu_1"].module.address == "1"
    assert {op.module.address for op in second.modules["0"].ops} == {"0"}
    assert any("int8" in op.type for op in second.modules["0"].ops)
    assert second.params["0.weight"].dtype == torch.int8
    # the first forward moves the weight's scales to where later ones find them
    assert [call.label for call in first.module_calls] == [call.label for call in second.module_calls]


def test_eight_bits_with_outliers_are_unverified_because_the_kernel_writes_into_its_input() -> None:
    """It sets them to zero and puts them back, under a schema that says it writes nothing."""
    model, x = eight_bit(torch.float16, threshold=2.0), inputs(torch.float16)
    version = x._version
    trace = tl.trace(model, x)
    assert torch.equal(trace.output, eight_bit(torch.float16, threshold=2.0)(x))
    assert x._version > version and torch.equal(x, inputs(torch.float16))
    assert trace.provenance.verification_reason == "unexplained_write"
    with pytest.raises(OverwrittenError, match="changed in place by something the capture did not see"):
        trace["input_1"].out


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "compressed statistics"])
@pytest.mark.parametrize("kind", ["nf4", "fp4"])
def test_four_bits(kind: str, compressed: bool) -> None:
    first, second = agreeing(lambda: four_bit(kind, compressed), inputs(torch.float32))
    assert op_labels(first) == op_labels(second)
    assert first.params["0.weight"].dtype == torch.uint8
    assert "0.weight" in {param.address for op in first.modules["0"].ops for param in op.params}
