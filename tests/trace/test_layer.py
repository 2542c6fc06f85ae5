"""Layers: passes of one place."""

from __future__ import annotations

import pytest
import torch

import torchlens as tl
from tests import models
from tests.programs.reading import addresses, floats
from torchlens.errors import OverwrittenError, SeveralPassesError


def test_a_layer_of_several_passes() -> None:
    trace = tl.trace(models.Looped(), floats(2, 4))
    layer = trace.layers["tanh_1"]
    assert (layer.layer_label, layer.type, layer.func_name, layer.num_passes) == ("tanh_1", "tanh", "tanh", 3)
    assert [op.label for op in layer.ops] == ["tanh_1:1", "tanh_1:2", "tanh_1:3"]
    assert layer.ops[0].pass_number == 1 and layer.ops[-1] == trace["tanh_1:3"]
    assert [parent.title for parent in layer.parents] == ["input_1", "mul_1"]
    assert [child.title for child in layer.children] == ["mul_1"]
    assert (layer.title, repr(layer)) == ("tanh_1", "<Layer tanh_1 3 passes>")
    assert layer.module == trace.modules[""]


SINGLE = (
    "out shape dtype device nbytes requires_grad args kwargs buffers module_call call_site graph call_index "
    "func operation composites output_slot gradient_edge duration_ns flops macs flops_reason grad_enabled "
    "autocast is_inplace is_boundary reads kind label pass_number spelling_known"
).split()


@pytest.mark.parametrize("name", SINGLE)
def test_a_layer_of_several_passes_has_no_single_value(name: str) -> None:
    layer = tl.trace(models.Looped(), floats(2, 4))["tanh_1"]
    with pytest.raises(
        SeveralPassesError, match=rf"tanh_1 has 3 passes \(tanh_1:1, tanh_1:2, tanh_1:3\).*no single '{name}'"
    ):
        getattr(layer, name)
    assert not hasattr(layer, name)


def test_many_passes_are_not_all_named() -> None:
    def loop(x: torch.Tensor) -> torch.Tensor:
        for _ in range(50):
            x = torch.tanh(x)
        return x

    layer = tl.trace(loop, floats(2))["tanh_1"]
    with pytest.raises(
        SeveralPassesError, match=r"50 passes \(tanh_1:1, tanh_1:2, tanh_1:3, ... tanh_1:50\)"
    ) as caught:
        layer.out
    assert 'trace["tanh_1:1"].out' in str(caught.value)


@pytest.mark.parametrize("name", SINGLE)
def test_a_layer_of_one_pass_has_what_its_op_has(name: str) -> None:
    trace = tl.trace(models.BareParameter(), floats(3, 4))
    found, expected = getattr(trace["mul_1"], name), getattr(trace["mul_1:1"], name)
    if name == "args":
        assert [ref.label for ref in found] == [ref.label for ref in expected]
    elif name in ("buffers",):
        assert list(found) == list(expected)
    else:
        assert found is expected or found == expected


def test_an_error_of_the_op_comes_through() -> None:
    trace = tl.trace(models.BareParameter(), floats(3, 4))
    trace.output.detach().add_(1)
    with pytest.raises(OverwrittenError, match="add_1:1 was changed in place"):
        trace["add_1"].out


def test_params_are_those_of_all_passes() -> None:
    trace = tl.trace(models.LoopsOverParameters(), floats(2, 4))
    layer = trace["matmul_1"]
    assert addresses(layer.params) == ["weights.0", "weights.1", "weights.2"]
    assert addresses(layer.ops[1].params) == ["weights.1"]


def test_kinds_of_layers() -> None:
    trace = tl.trace(models.CountsInPlace(), floats(3, 4))
    flags = {layer.layer_label: (layer.is_input, layer.is_output, layer.is_buffer) for layer in trace.layers}
    assert flags["input_1"] == (True, False, False)
    assert flags["output_1"] == (False, True, False)
    assert flags["buffer_1"] == (False, False, True)
    assert flags["add_1"] == (False, False, False)


@pytest.mark.parametrize("name", ["outt", "weight", "__wrapped__"])
def test_a_layer_has_no_other_attributes(name: str) -> None:
    trace = tl.trace(models.Looped(), floats(2, 4))
    with pytest.raises(AttributeError, match="a layer has no attribute"):
        getattr(trace["tanh_1"], name)
