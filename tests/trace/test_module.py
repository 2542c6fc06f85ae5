"""Modules and module calls: addresses, nesting, arguments and what callers received."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests import models
from tests.programs.reading import addresses, floats, lint
from torchlens.errors import IncompleteError, SeveralPassesError

Pair = namedtuple("Pair", "low high")


@dataclass
class Result:
    low: Tensor
    extra: dict[str, Any]


class Inner(nn.Module):
    def forward(self, batch: dict[str, Any], *more: Any, scale: Any = None) -> Result:
        low = batch["a"] * scale[0]
        return Result(low, {"high": [low + 1, None], "pair": Pair(low, "name")})


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()
        self.unused = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner({"a": x, "b": [x + 1]}, 3, scale=(x * 2, "half")).low


def test_every_module_stands_there_called_or_not() -> None:
    trace = tl.trace(Outer(), floats(3))
    assert [(m.address, m.type, m.num_calls) for m in trace.modules] == [
        ("", "Outer", 1), ("inner", "Inner", 1), ("unused", "Linear", 0),
    ]  # fmt: skip
    unused = trace.modules["unused"]
    assert (
        list(unused.ops) == []
        and list(unused.calls) == []
        and addresses(unused.params) == ["unused.weight", "unused.bias"]
    )
    with pytest.raises(IncompleteError, match="unused was not called"):
        unused.out
    assert not hasattr(unused, "out")


def test_the_tree_of_modules() -> None:
    trace = tl.trace(models.ReusedBlock(), floats(2, 4))
    root, block = trace.modules[""], trace.modules["block"]
    assert root.parent is None and block.parent == root and list(root.children) == [block]
    assert [child.address for child in block.children] == ["block.first", "block.second"]
    assert (str(root), str(block)) == ("ReusedBlock", "block")
    assert repr(block) == "<Module 'block' ResidualBlock 3 calls>"
    assert [op.label for op in block.ops] == [f"add_{k}:{n}" for n in (1, 2, 3) for k in (1, 2)]
    assert [layer.layer_label for layer in block.layers] == ["add_1", "add_2"]
    assert block.training is True and block.addresses == ("block",)


def test_the_tree_of_calls() -> None:
    trace = tl.trace(models.ReusedBlock(), floats(2, 4))
    assert [call.label for call in trace.module_calls][:4] == [
        ":1",
        "block:1",
        "block.first:1",
        "block.second:1",
    ]
    root, first = trace.module_calls[":1"], trace.module_calls["block:2"]
    assert root.parent is None and first.parent == root and first.number == 2
    assert [call.label for call in root.children] == ["block:1", "block:2", "block:3"]
    assert first.module == trace.modules["block"]
    assert [op.label for op in first.ops] == ["add_1:2", "add_2:2"]
    assert repr(first) == "<ModuleCall block:2 of ResidualBlock>"
    assert [op.label for op in first.inputs] == ["add_2:1"] and [op.label for op in first.outputs] == [
        "add_2:2"
    ]


def test_a_module_of_several_calls_has_no_single_output() -> None:
    trace = tl.trace(models.ReusedBlock(), floats(2, 4))
    with pytest.raises(
        SeveralPassesError, match=r'block was called 3 times; .*module_calls\["block:1"\].output'
    ):
        trace["block"].out
    assert not hasattr(trace["block"], "out")
    assert torch.equal(trace.module_calls["block:3"].output, trace.output)


def test_arguments_and_outputs_keep_their_containers() -> None:
    x = floats(3)
    trace = tl.trace(Outer(), x)
    call = trace["inner:1"]
    batch, number = call.args
    assert number == 3 and torch.equal(batch["a"], x) and torch.equal(batch["b"][0], x + 1)
    assert torch.equal(call.kwargs["scale"][0], x * 2) and call.kwargs["scale"][1] == "half"
    assert [op.label for op in call.inputs] == ["input_1:1", "add_1:1", "mul_1:1"]
    assert isinstance(call.output, Result) and type(call.output.extra["pair"]) is Pair
    assert call.output.extra["high"][1] is None and call.output.extra["pair"].high == "name"
    assert [op.label for op in call.outputs] == ["mul_2:1", "add_2:1", "mul_2:1"]
    assert torch.equal(trace["inner"].out.low, x * x * 2)


def test_values_of_calls_are_those_at_the_call() -> None:
    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act = nn.ReLU(inplace=True)

        def forward(self, x: Tensor) -> Tensor:
            y = x * 1
            z = self.act(y)
            z.add_(5)
            return z

    x = floats(3, 4)
    call = tl.trace(Writes(), x)["act:1"]
    assert torch.equal(call.args[0], x)
    assert torch.equal(call.output, x.relu())


def test_inputs_of_a_call_in_a_block() -> None:
    model = nn.Linear(4, 4)
    x = floats(3, 4)
    with tl.capture(model) as trace:
        model(x)
        model(input=x)
    for label in (":1", ":2"):
        assert [op.label for op in trace.module_calls[label].inputs] == ["input_1:1"]
    assert [op.label for op in trace.inputs] == ["input_1:1"]


# ---- what the caller received --------------------------------------------------------------------


def test_the_output_of_a_module_is_what_its_hooks_made_of_it() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    model[0].register_forward_hook(lambda module, args, output: output * 2)
    model[0].register_forward_hook(lambda module, args, output: {"wrapped": output + 1})
    model[0].register_forward_hook(lambda module, args, output: output["wrapped"])
    x = floats(3, 4)
    trace = tl.trace(model, x)
    assert torch.equal(trace["0"].out, model[0](x))


def test_the_ops_a_module_returned_are_those_of_its_hooks() -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    model[0].register_forward_hook(lambda module, args, output: output * 2)
    trace = tl.trace(model, floats(3, 4))
    assert [op.type for op in trace["0:1"].outputs] == ["mul"]


def test_a_hook_that_writes_in_place_is_part_of_the_output() -> None:
    def raise_by_one(module: nn.Module, args: Any, output: Tensor) -> None:
        with torch.no_grad():
            output.add_(1)

    model = nn.Sequential(nn.Linear(4, 4))
    model[0].register_forward_hook(raise_by_one)
    x = floats(3, 4)
    trace = tl.trace(model, x)
    assert torch.equal(trace["0"].out, model[0](x))
    assert torch.equal(trace[""].out, model[0](x)) and torch.equal(trace.output, model[0](x))


def test_pre_hooks_do_not_change_what_the_caller_passed() -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    model[0].register_forward_pre_hook(models.halve_input)
    x = floats(3, 4)
    trace = tl.trace(model, x)
    assert torch.equal(trace["0:1"].args[0], x)
    assert [op.label for op in trace["0:1"].inputs] == ["input_1:1"]


# ---- shared, lazy, outside -----------------------------------------------------------------------


def test_a_shared_module_has_every_address() -> None:
    trace = tl.trace(models.SharedByTwoParents(), floats(3, 4))
    shared = trace.modules["right.inner"]
    assert shared.addresses == ("left.inner", "right.inner") and shared.address == "left.inner"
    assert shared.num_calls == 2 and shared == trace.modules["left.inner"]
    assert trace.module_calls["right.inner:2"] == trace.module_calls["left.inner:2"]
    assert trace.params["right.inner.weight"].addresses == ("left.inner.weight", "right.inner.weight")
    assert len(trace.params) == 2


def test_a_lazy_module_is_what_it_became() -> None:
    def lazy() -> nn.Module:
        return nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d())

    trace = tl.trace(lazy(), floats(5, 4), capture=tl.options.CaptureOptions(seed=1))
    lint(trace)
    assert [(p.address, p.shape) for p in trace.params] == [
        ("0.weight", (3, 4)), ("0.bias", (3,)), ("1.weight", (3,)), ("1.bias", (3,)),
    ]  # fmt: skip
    assert [module.type for module in trace.modules][1:] == ["Linear", "BatchNorm1d"]
    torch.manual_seed(1)
    model = lazy()
    torch.manual_seed(1)
    assert torch.equal(model(floats(5, 4)), trace.output)


def test_modules_outside_the_model_are_named_by_class_and_number() -> None:
    one, two = nn.Linear(4, 4), nn.Linear(4, 4)
    x = floats(3, 4)
    with tl.capture(nn.Identity()) as trace:
        two(one(two(x)))
    assert [(m.address, m.num_calls, m.parent) for m in trace.modules][1:] == [
        ("Linear_1", 2, None),
        ("Linear_2", 1, None),
    ]
    assert [call.label for call in trace.module_calls] == ["Linear_1:1", "Linear_2:1", "Linear_1:2"]
    assert addresses(trace["linear_1"].params) == ["Linear_1.weight", "Linear_1.bias"]


def test_several_models_have_addresses_that_begin_with_their_names() -> None:
    encoder, decoder = nn.Sequential(nn.Linear(4, 4)), nn.Linear(4, 4)
    with tl.capture({"encoder": encoder, "decoder": decoder}) as trace:
        decoder(encoder(floats(3, 4)))
    assert [module.address for module in trace.modules] == ["", "encoder", "encoder.0", "decoder"]
    assert addresses(trace.params) == ["encoder.0.weight", "encoder.0.bias", "decoder.weight", "decoder.bias"]
    assert [module.address for module in trace[""].children] == ["encoder", "decoder"]
    assert trace["decoder"].parent == trace[""]


def called_with_other_weights() -> tl.Trace:
    model, x = nn.Linear(4, 4), floats(3, 4)
    weights = {"weight": torch.zeros(4, 4), "bias": torch.ones(4)}
    with tl.capture(model) as trace:
        torch.func.functional_call(model, weights, (x,))
    return trace


def test_functional_call_is_seen_through() -> None:
    trace = called_with_other_weights()
    assert trace[""].num_calls == 1 and trace.provenance.verified
    assert [op.type for op in trace.ops] == ["input", "source", "source", "linear", "output"]
    _, weight, bias = trace["linear_1"].args
    assert weight.param is None and bias.param is None, "the tensors given are not the model's parameters"
    assert torch.equal(weight.out, torch.zeros(4, 4)) and torch.equal(bias.out, torch.ones(4))


def test_tensors_given_to_functional_call_are_sources_by_the_name_the_module_holds_them_under() -> None:
    names = {op.name for op in called_with_other_weights().ops if op.kind == "source"}
    assert names == {"self._parameters['weight']", "self._parameters['bias']"}


def test_a_call_that_raised_has_arguments_and_no_output() -> None:
    class Fails(nn.Module):
        def forward(self, x: Tensor, *, k: Tensor) -> Tensor:
            raise ValueError("deliberate")

    x, k = floats(3), floats(2)
    model = Fails()
    with pytest.raises(ValueError, match="deliberate"), tl.capture(model) as trace:
        model(x, k=k)
    call = trace.module_calls[":1"]
    assert torch.equal(call.args[0], x)
    for name in ("output", "outputs"):
        with pytest.raises(IncompleteError, match=r":1 did not return.*trace\.error"):
            getattr(call, name)
    with pytest.raises(IncompleteError, match=":1 did not return"):
        trace[""].out


def test_a_call_that_raised_has_its_keyword_arguments() -> None:
    class Fails(nn.Module):
        def forward(self, x: Tensor, *, k: Tensor) -> Tensor:
            raise ValueError("deliberate")

    k, model = floats(2), Fails()
    with pytest.raises(ValueError, match="deliberate"), tl.capture(model) as trace:
        model(floats(3), k=k)
    assert torch.equal(trace.module_calls[":1"].kwargs["k"], k)


def test_a_forward_called_directly_is_no_call_and_a_note_says_so() -> None:
    trace = tl.trace(models.CallsForwardDirectly(), floats(3, 4))
    assert trace["linear"].num_calls == 1
    assert trace.notes == (
        "Linear.forward was called without __call__: its ops belong to the caller's scope.",
    )
    assert trace["linear_1"].module == trace[""] and trace["linear_2"].module == trace["linear"]


def test_super_forward_is_no_direct_call() -> None:
    class Doubled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * 2

    assert tl.trace(Doubled(4, 4), floats(3, 4)).notes == ()


def test_a_scripted_child_is_one_op_in_its_own_call() -> None:
    model = models.HasScriptedChild()
    trace = tl.trace(model, floats(3, 4))
    assert trace["scripted"].num_calls == 2
    assert [op.label for op in trace.ops if op.is_boundary] == ["torchscript_1:1", "torchscript_1:2"]
    assert [op.label for op in trace["torchscript_1:2"].parents] == ["torchscript_1:1"]
    assert torch.equal(trace["scripted:2"].output, trace.output)
