"""Tensors that are more than elements behind sizes and strides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.ao.nn.quantized as nnq
import torch.nn.functional as F
from torch import Tensor, nn

import torchlens as tl
from tests.programs.agreement import agrees, assert_same_bits
from tests.programs.reading import floats, parent_labels
from torchlens.errors import OverwrittenError

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*[Nn]ested tensors"),
    pytest.mark.filterwarnings("ignore:.*[Ss]parse"),
    pytest.mark.filterwarnings("ignore:torch.ao.quantization"),
    pytest.mark.filterwarnings("ignore:.*quantized"),
    pytest.mark.filterwarnings("ignore:is_fx_tracing"),
]

WEIGHT = floats(3, 3)
OFFSETS = torch.tensor([0, 1, 4])


def then(write: Callable[[Any], Any], read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A program that writes into a tensor and reads it afterwards."""

    def program(x: Any) -> Any:
        write(x)
        return read(x)

    return program


def after(make: Callable[[Tensor], Any], program: Callable[[Any], Any]) -> Callable[[Tensor], Any]:
    return lambda x: program(make(x))


def dense(x: Tensor) -> Tensor:
    return x.to_dense() + 1


def coalesced(x: Tensor) -> Tensor:
    indices = torch.tensor([[0, 0], [1, 1]])
    return torch.sparse_coo_tensor(indices, x[0, :2], (3, 3)).coalesce().values() + 1


def sparse_softmax(x: Tensor) -> Tensor:
    return (
        torch.sparse.softmax(x.to_sparse(), 1).to_dense()
        + torch.sparse.sum(x.to_sparse(), 1).to_dense()[:, None]
    )


def sparse_out(x: Tensor) -> Any:
    out = x.to_sparse()
    torch.add(out, out, out=out)
    return out.to_dense()


SPARSE: dict[str, Callable[[Tensor], Any]] = {
    "coo": lambda x: (x.relu().to_sparse() * 2).to_dense() + 1,
    "coo by matrix": lambda x: torch.sparse.mm(x.to_sparse(), WEIGHT) + 1,
    "csr by matrix": lambda x: x.relu().to_sparse_csr() @ WEIGHT + 1,
    "csc": lambda x: x.relu().to_sparse_csc().to_dense() + 1,
    "bsr": lambda x: F.pad(x, (0, 1)).to_sparse_bsr((2, 2)).to_dense() + 1,
    "coalesce": coalesced,
    "softmax and sum": sparse_softmax,
    "out": sparse_out,
    "coo add_": after(Tensor.to_sparse, then(lambda s: s.add_(s), dense)),
    "coo mul_": after(Tensor.to_sparse, then(lambda s: s.mul_(3), dense)),
    "coo zero_": after(Tensor.to_sparse, then(lambda s: s.zero_(), dense)),
    "coo copy_": lambda x: x.to_sparse().copy_(x.sin().to_sparse()).to_dense(),
    "coo resized": after(Tensor.to_sparse, then(lambda s: s.sparse_resize_((5, 3), 2, 0), dense)),
    "csr mul_": after(Tensor.to_sparse_csr, then(lambda s: s.mul_(3), dense)),
    "mkldnn": lambda x: (x.to_mkldnn() * 2).relu_().to_dense() + 1,
}


@pytest.mark.parametrize("name", SPARSE)
def test_sparse(name: str) -> None:
    agrees(lambda: SPARSE[name], floats(4, 3))


@pytest.mark.parametrize("name", ["coo", "coo by matrix"])
def test_sparse_gradients(name: str) -> None:
    agrees(lambda: SPARSE[name], floats(4, 3), grad=True)


def test_a_sparse_gradient() -> None:
    agrees(lambda: nn.Embedding(5, 3, sparse=True), torch.tensor([0, 1]), grad=True)


@pytest.mark.parametrize("make", [Tensor.to_sparse, Tensor.to_sparse_csr], ids=["coo", "csr"])
def test_a_sparse_value_before_it_was_overwritten(make: Callable[[Tensor], Tensor]) -> None:
    trace = agrees(lambda: after(make, then(lambda s: s.mul_(3), dense)), floats(2, 3))
    made = next(op for op in trace.ops if op.type.startswith("to_sparse"))
    assert_same_bits(made.out.to_dense(), floats(2, 3))
    assert_same_bits(trace["mul_1:1"].out.to_dense(), floats(2, 3) * 3)
    assert parent_labels(trace["to_dense_1:1"]) == ["mul_1:1"]


def test_a_write_through_the_values_of_a_sparse_tensor_is_noticed() -> None:
    program = after(Tensor.to_sparse_csr, then(lambda s: s.values().mul_(3), dense))
    trace = agrees(lambda: program, floats(2, 3), verified=False, checked=False)
    assert trace.provenance.verification_reason == "unexplained_write"


# ---- nested --------------------------------------------------------------------------------------


def strided(x: Tensor) -> Tensor:
    return torch.nested.as_nested_tensor([x[:2] * 1, x * 2])


def jagged(x: Tensor) -> Tensor:
    return torch.nested.nested_tensor_from_jagged(x * 1, OFFSETS)


def padded(n: Tensor) -> Tensor:
    return n.to_padded_tensor(0.0) + 1


def attend(n: Tensor) -> Tensor:
    q = n.unflatten(-1, [1, 3]).transpose(1, 2)
    return F.scaled_dot_product_attention(q, q, q).values()


NESTED: dict[str, Callable[[Tensor], Any]] = {
    "strided": after(strided, lambda n: padded(n.sin() * 2)),
    "strided linear": after(strided, lambda n: padded(F.linear(n, WEIGHT))),
    "strided mul_": after(strided, then(lambda n: n.mul_(2), padded)),
    "strided values": after(strided, then(lambda n: n.values().mul_(2), padded)),
    "strided part": after(strided, then(lambda n: n.unbind()[1].mul_(2), padded)),
    "jagged": after(jagged, lambda n: (n.sin() * 2).values() + 1),
    "jagged of a list": lambda x: torch.nested.nested_tensor([x[:2], x], layout=torch.jagged).sin().values(),
    "jagged sum": after(jagged, lambda n: n.sum(-1).values()),
    "jagged unbind": after(jagged, lambda n: n.unbind()[1] + 1),
    "jagged attention": after(jagged, attend),
    "jagged mul_": after(jagged, then(lambda n: n.mul_(2), lambda n: n.values() + 1)),
}


@pytest.mark.parametrize("name", NESTED)
def test_nested(name: str) -> None:
    agrees(lambda: NESTED[name], floats(4, 3))


@pytest.mark.parametrize("name", ["strided", "jagged", "jagged unbind"])
def test_nested_gradients(name: str) -> None:
    agrees(lambda: NESTED[name], floats(4, 3), grad=True)


@pytest.mark.parametrize("make", [strided, jagged], ids=["strided", "jagged"])
def test_nested_inputs(make: Callable[[Tensor], Tensor]) -> None:
    agrees(lambda: lambda n: F.linear(n, WEIGHT).sin(), make(floats(4, 3)))


@pytest.mark.parametrize("name", ["strided mul_", "strided values", "strided part"])
def test_a_nested_value_before_it_was_overwritten(name: str) -> None:
    trace = agrees(lambda: NESTED[name], floats(4, 3))
    made = trace["nested_tensor_from_tensor_list_1:1"]
    for found, expected in zip(made.out.unbind(), (floats(4, 3)[:2], floats(4, 3) * 2)):
        assert_same_bits(found, expected)
    assert "mul_3:1" in parent_labels(trace["to_padded_tensor_1:1"])


def test_what_a_write_into_a_jagged_tensor_does_to_the_values_it_was_made_of() -> None:
    trace = agrees(lambda: NESTED["jagged mul_"], floats(4, 3))
    assert_same_bits(trace["mul_1:1"].out, floats(4, 3))
    with pytest.raises(OverwrittenError, match="only NestedTensor itself knows"):
        _ = trace["nested_view_from_jagged_1:1"].out


# ---- quantized -----------------------------------------------------------------------------------


def per_tensor(x: Tensor) -> Tensor:
    return torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)


def per_channel(x: Tensor) -> Tensor:
    return torch.quantize_per_channel(
        x, torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0, 0, 0]), 1, torch.qint8
    )


def quantized_layers() -> nn.Sequential:
    linear = nnq.Linear(3, 2)
    linear.set_weight_bias(torch.quantize_per_tensor(floats(2, 3), 0.01, 0, torch.qint8), floats(2))
    return nn.Sequential(nnq.Quantize(0.1, 0, torch.quint8), linear, nnq.ReLU6(), nnq.DeQuantize())


def dynamic(part: nn.Module) -> Callable[[], nn.Module]:
    kinds = {nn.Linear, nn.LSTM}
    return lambda: torch.ao.quantization.quantize_dynamic(part, kinds, torch.qint8)


def prepared_for_training() -> nn.Module:
    model = nn.Sequential(torch.ao.quantization.QuantStub(), nn.Linear(3, 3), nn.ReLU()).train()
    model.qconfig = torch.ao.quantization.get_default_qat_qconfig("x86")
    return torch.ao.quantization.prepare_qat(model)


QUANTIZED: dict[str, Callable[[], Any]] = {
    "per tensor": lambda: lambda x: per_tensor(x).dequantize() + 1,
    "per channel": lambda: lambda x: per_channel(x).dequantize() + 1,
    "relu_": lambda: after(per_tensor, then(lambda q: F.relu(q, inplace=True), Tensor.dequantize)),
    "setitem": lambda: after(per_tensor, then(lambda q: q.__setitem__(0, q[1]), Tensor.dequantize)),
    "copy_": lambda: after(per_tensor, then(lambda q: q.copy_(torch.ones(4, 3)), Tensor.dequantize)),
    "channel copy_": lambda: after(per_channel, then(lambda q: q.copy_(torch.ones(4, 3)), Tensor.dequantize)),
    "layers": quantized_layers,
    "dynamic linear": dynamic(nn.Sequential(nn.Linear(3, 3), nn.ReLU())),
    "dynamic LSTM": dynamic(nn.LSTM(3, 3)),
}


@pytest.mark.parametrize("name", QUANTIZED)
def test_quantized(name: str) -> None:
    agrees(QUANTIZED[name], floats(4, 3))


def test_training_for_quantization() -> None:
    agrees(prepared_for_training, floats(4, 3), grad=True)


@pytest.mark.parametrize("make", [per_tensor, per_channel], ids=["tensor", "channel"])
def test_a_quantized_value_before_it_was_overwritten(make: Callable[[Tensor], Tensor]) -> None:
    program = after(make, then(lambda q: q.copy_(torch.ones(4, 3)), Tensor.dequantize))
    trace = agrees(lambda: program, floats(4, 3))
    made = next(op for op in trace.ops if op.type.startswith("quantize_per"))
    assert_same_bits(made.out, make(floats(4, 3)))
    assert parent_labels(trace["dequantize_1:1"]) == ["copy_1:1"]


# ---- other types of elements, bits that stand for an operation, shapes ---------------------------

COMPLEX: dict[str, Callable[[Tensor], Any]] = {
    "fft": lambda c: (torch.fft.fft(c) * 2).real + c.imag,
    "conj": lambda c: (c.conj() * 2, c.conj().conj() + 1, c.conj().resolve_conj()),
    "conj written": lambda c: (lambda b: (b.conj().mul_(1j), b + 1))(c * 1),
    "conj written and read": lambda c: (lambda d: (d.mul_(1j), d * 1))((c * 1).conj()),
    "neg": lambda c: c.conj().imag * 2,
    "neg written": lambda c: (lambda b: (b.conj().imag.mul_(2), b + 1))(c * 1),
    "view_as_real written": lambda c: (lambda b: (torch.view_as_real(b).mul_(2), b + 1))(c * 1),
    "real written": lambda c: (lambda b: (b.real.mul_(2), b + 1))(c * 1),
}


@pytest.mark.parametrize("with_gradients", [False, True], ids=["no grad", "grad"])
@pytest.mark.parametrize("name", COMPLEX)
def test_complex(name: str, with_gradients: bool) -> None:
    agrees(lambda: COMPLEX[name], torch.complex(floats(4, 3), floats(4, 3).flip(0)), grad=with_gradients)


ELEMENTS: dict[str, tuple[Callable[[Tensor], Any], Tensor]] = {
    "float8": (lambda x: (x.float() * 2).to(torch.float8_e5m2), floats(4, 4).to(torch.float8_e4m3fn)),
    "float8 written": (
        lambda x: then(lambda y: y.copy_(torch.ones(4, 4)), Tensor.float)(x.clone()),
        floats(4, 4).to(torch.float8_e4m3fn),
    ),
    "unsigned": (lambda x: x.abs().to(torch.uint16).to(torch.int32) + 1, floats(4, 3)),
    "as bytes": (lambda x: x.view(torch.uint8) + 1, floats(4, 3)),
    "no dimension": (lambda z: (z.add_(1), z[None], z.item() * z), torch.tensor(3.0)),
    "no dimension, assigned": (
        lambda z: then(lambda y: y.__setitem__(..., 5.0), lambda y: y * 1)(z * 2),
        torch.tensor(3.0),
    ),
    "no elements": (
        lambda e: (e @ WEIGHT, e.sum(), torch.cat([e, WEIGHT]), e.view(3, 0).add_(1), F.linear(e, WEIGHT)),
        torch.zeros(0, 3),
    ),
    "no elements, written": (lambda e: then(lambda y: y[:0].mul_(2), lambda y: y * 1)(e * 1), floats(2, 3)),
}


@pytest.mark.parametrize("name", ELEMENTS)
def test_elements_and_shapes(name: str) -> None:
    program, x = ELEMENTS[name]
    agrees(lambda: program, x)


@pytest.mark.skipif(not hasattr(Tensor, "refine_names"), reason="this torch has no named tensors")
def test_named() -> None:
    agrees(lambda: lambda x: (x.refine_names("N", "C").align_to("C", "N") * 2).rename(None), floats(2, 3))


def test_nothing_is_copied_on_meta() -> None:
    def program(x: Tensor) -> Tensor:
        y = x * 1
        y.add_(1)
        y[0].mul_(2)
        return y * 2

    trace = agrees(lambda: program, torch.ones(4, 3, device="meta"))
    assert trace.copied_bytes == 0
    assert parent_labels(trace["mul_3:1"]) == ["add_1:1", "mul_2:1"]
    options = tl.options.CaptureOptions(max_copied=0)
    assert tl.trace(program, torch.ones(4, 3, device="meta"), capture=options)["mul_1:1"].out.shape == (4, 3)
