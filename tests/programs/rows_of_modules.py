"""Rows of the grouping page about modules: reuse, weights, buffers, hooks."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import torchlens as tl
from tests import models
from tests.programs.examples import token_ids
from tests.programs.page import row
from tests.programs.reading import (
    addresses,
    computed,
    floats,
    op_labels,
    passes,
    passes_of,
    run_labels,
    traced,
)


@row("`for _ in range(3): x = torch.tanh(x) * 0.5`")
def loop_of_two_ops() -> None:
    trace = traced(models.Looped())
    assert op_labels(trace) == "tanh_1:1 mul_1:1 tanh_1:2 mul_1:2 tanh_1:3 mul_1:3"
    assert [layer.func_name for layer in trace.layers] == ["input", "tanh", "__mul__", "output"]


@row("The two-op statement written out twice by hand")
def unrolled() -> None:
    assert op_labels(traced(models.Unrolled())) == "tanh_1:1 mul_1:1 tanh_2:1 mul_2:1"


@row("`nn.RNNCell` or `nn.LSTMCell` applied per time step, with `x[:, t]`")
def cells_per_step() -> None:
    rnn, lstm = nn.RNNCell(4, 4), nn.LSTMCell(4, 4)

    def run_rnn(x: Tensor, h: Tensor) -> Tensor:
        for t in range(2):
            h = rnn(x[:, t], h)
        return h

    def run_lstm(x: Tensor, h: Tensor, c: Tensor) -> Tensor:
        for t in range(2):
            h, c = lstm(x[:, t], (h, c))
        return h

    x, h = floats(2, 2, 4), floats(2, 4)
    assert run_labels(run_rnn, x, h) == "getitem_1:1 rnn_tanh_cell_1:1 getitem_1:2 rnn_tanh_cell_1:2"
    steps = [f"getitem_1:{t} lstm_cell_1:{t} lstm_cell_2:{t}" for t in (1, 2)]
    assert run_labels(run_lstm, x, h, h) == " ".join(steps)


@row("Two residual adds in a block called once")
def residual_adds() -> None:
    assert op_labels(traced(models.ResidualBlock())) == "linear_1:1 add_1:1 linear_2:1 add_2:1"


@row("That block called 3 times from a loop")
def residual_adds_in_loop() -> None:
    trace = traced(models.ReusedBlock())
    calls = [f"linear_1:{k} add_1:{k} linear_2:{k} add_2:{k}" for k in (1, 2, 3)]
    assert op_labels(trace) == " ".join(calls)
    assert [call.label for call in trace.modules["block"].calls] == ["block:1", "block:2", "block:3"]


@row("A `ModuleList` of 3 such blocks (a transformer decoder)")
def stacked_blocks() -> None:
    trace = traced(models.StackedBlocks())
    assert passes_of(trace, "add") == {f"add_{n}": 1 for n in range(1, 7)}
    assert passes_of(trace, "linear") == {f"linear_{n}": 1 for n in range(1, 7)}


@row("One raw weight used on two lines, `x @ W` twice")
def raw_weight() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.W = nn.Parameter(torch.eye(4))

        def forward(self, x: Tensor) -> Tensor:
            x = x @ self.W
            return x @ self.W

    trace = traced(Twice())
    assert op_labels(trace) == "matmul_1:1 matmul_2:1"
    assert [addresses(trace[label].params) for label in ("matmul_1", "matmul_2")] == [["W"], ["W"]]


@row("Embedding and output head with tied weights")
def tied_weights() -> None:
    trace = traced(models.TiedWeights(), *token_ids())
    assert op_labels(trace) == "embedding_1:1 linear_1:1"
    assert [param.addresses for param in trace.params] == [("embed.weight", "head.weight")]
    assert trace["embedding_1"].params[0] == trace["linear_1"].params[0] == trace.params["head.weight"]


@row("One module called 3 times from a loop")
def module_in_loop() -> None:
    inner = nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    class Calls(models.Wrapper):
        def forward(self, x: Tensor) -> Tensor:
            for _ in range(3):
                x = self.inner(x)
            return x

    trace = traced(Calls(inner))
    assert op_labels(trace) == "linear_1:1 tanh_1:1 linear_1:2 tanh_1:2 linear_1:3 tanh_1:3"
    assert trace.modules["inner"].num_calls == trace.modules["inner.0"].num_calls == 3
    assert [op.module_call.label for op in trace["tanh_1"].ops] == ["inner.1:1", "inner.1:2", "inner.1:3"]


@row("One module instance called from 3 different lines")
def module_on_three_lines() -> None:
    class Calls(models.Wrapper):
        def forward(self, x: Tensor) -> Tensor:
            x = self.inner(x)
            y = self.inner(x)
            return self.inner(y)

    trace = traced(Calls(nn.Linear(4, 4)))
    assert op_labels(trace) == "linear_1:1 linear_1:2 linear_1:3"
    assert [call.label for call in trace.modules["inner"].calls] == ["inner:1", "inner:2", "inner:3"]
    assert trace["linear_1"].module == trace.modules["inner"]


@row("One `nn.ReLU` instance reused on 3 lines, with other ops between")
def reused_relu() -> None:
    trace = traced(models.ReusedRelu())
    assert op_labels(trace) == "relu_1:1 sub_1:1 relu_1:2 mul_1:1 relu_1:3"
    assert trace.modules["relu"].num_calls == 3


@row("One module instance shared by two parent modules")
def shared_instance() -> None:
    trace = traced(models.SharedByTwoParents())
    assert op_labels(trace) == "linear_1:1 linear_1:2"
    shared = trace.modules["left.inner"]
    assert shared == trace.modules["right.inner"] and shared.num_calls == 2
    assert shared.addresses == ("left.inner", "right.inner")
    assert addresses(trace["linear_1"].params) == ["left.inner.weight", "left.inner.bias"]


@row("A `ModuleList` of distinct but identical modules")
def identical_modules() -> None:
    layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
    for layer in layers:
        layer.load_state_dict(layers[0].state_dict())

    class Calls(models.Wrapper):
        def forward(self, x: Tensor) -> Tensor:
            for layer in self.inner:
                x = layer(x)
            return x

    assert op_labels(traced(Calls(layers))) == "linear_1:1 linear_2:1 linear_3:1"


@row("Siamese encoder (one encoder on two inputs)")
def siamese() -> None:
    trace = traced(models.Siamese(), floats(3, 4), floats(3, 4))
    assert op_labels(trace) == "linear_1:1 relu_1:1 linear_1:2 relu_1:2 mul_1:1 sum_1:1"
    assert [call.label for call in trace.modules["encoder"].calls] == ["encoder:1", "encoder:2"]


@row("`sum(h(x) for h in self.heads)` over a `ModuleList`")
def sum_of_heads() -> None:
    trace = traced(models.SumsHeads())
    assert op_labels(trace) == "linear_1:1 radd_1:1 linear_2:1 add_1:1 linear_3:1 add_1:2"
    assert [trace[label].func_name for label in ("radd_1", "add_1")] == ["__radd__", "__add__"]
    assert [trace[f"linear_{n}"].module.address for n in (1, 2, 3)] == ["heads.0", "heads.1", "heads.2"]


@row("Greedy generation calling a model from one line")
def generation() -> None:
    model = models.TiedWeights()
    ids = torch.tensor([[1]])
    with tl.capture(model) as trace:
        for _ in range(3):
            chosen = model(ids)[:, -1:].argmax(-1)
            ids = torch.cat([ids, chosen], dim=1)
    step = "embedding_1:{0} linear_1:{0} getitem_1:{0} argmax_1:{0} cat_1:{0}"
    assert op_labels(trace) == " ".join(step.format(k) for k in (1, 2, 3))


@row("A buffer updated in place in a loop")
def buffer_in_loop() -> None:
    trace = traced(models.CountsInPlace())
    versions = [f"add_1:{k} buffer_1:{k + 1}" for k in (1, 2, 3)]
    assert op_labels(trace) == " ".join(["buffer_1:1", *versions, "add_2:1"])
    assert trace["add_1"].func_name == "add_"


@row("A buffer updated on two different lines")
def buffer_on_two_lines() -> None:
    trace = traced(models.CountsOnTwoLines())
    writes = [layer for layer in trace.layers if layer.func_name == "add_"]
    assert [(layer.layer_label, layer.num_passes) for layer in writes] == [("add_1", 1), ("add_2", 1)]
    assert passes_of(trace, "buffer") == {"buffer_1": 1, "buffer_2": 1, "buffer_3": 1}


@row("A loop over a `ParameterList`, `x = torch.tanh(x @ w)`")
def parameter_list() -> None:
    trace = traced(models.LoopsOverParameters())
    assert op_labels(trace) == "matmul_1:1 tanh_1:1 matmul_1:2 tanh_1:2 matmul_1:3 tanh_1:3"


@row("Root `ModuleList` loop with glue `x = x + blk(x)`")
def glue() -> None:
    class Root(nn.ModuleList):
        def forward(self, x: Tensor) -> Tensor:
            for blk in self:
                x = x + blk(x)
            return x

    trace = traced(Root([nn.Linear(4, 4), nn.Linear(4, 4)]))
    assert op_labels(trace) == "linear_1:1 add_1:1 linear_2:1 add_1:2"


@row("`torch.utils.checkpoint` of one block from two lines")
def checkpointed_block() -> None:
    for use_reentrant in (False, True):
        trace = traced(models.Checkpointed(use_reentrant), floats(2, 4).requires_grad_())
        calls = [f"linear_1:{k} tanh_1:{k} dropout_1:{k}" for k in (1, 2)]
        assert op_labels(trace) == " ".join(calls)


@row("A forward hook on a module called in a loop")
def hook_in_loop() -> None:
    trace = traced(models.Hooked())
    assert op_labels(trace) == "mul_1:1 linear_1:1 add_1:1 mul_1:2 linear_1:2 add_1:2"


@row("One hook on two distinct modules called from one loop line")
def hook_on_two_modules() -> None:
    model = models.StackedBlocks()
    model.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
    for block in model.blocks:
        block.register_forward_hook(models.add_one)
    assert op_labels(traced(model)) == "linear_1:1 add_1:1 linear_2:1 add_2:1"


@row("A loop over a `ParameterList`: which weights does the layer list?")
def weights_of_passes() -> None:
    layer = traced(models.LoopsOverParameters())["matmul_1"]
    assert addresses(layer.params) == ["weights.0", "weights.1", "weights.2"]
    assert [addresses(op.params) for op in layer.ops] == [["weights.0"], ["weights.1"], ["weights.2"]]


@row("A special first step before a loop that uses the same weight")
def first_step() -> None:
    class Steps(models.BareParameter):
        def forward(self, x: Tensor) -> Tensor:
            x = torch.tanh(x * self.scale)
            for _ in range(2):
                x = torch.tanh(x * self.scale)
            return x

    trace = traced(Steps())
    assert op_labels(trace) == "mul_1:1 tanh_1:1 mul_2:1 tanh_2:1 mul_2:2 tanh_2:2"
    assert addresses(trace["mul_1"].params) == addresses(trace["mul_2"].params) == ["scale"]


@row("A TorchScript submodule called in a loop")
def scripted_child() -> None:
    trace = traced(models.HasScriptedChild())
    assert [(op.kind, op.pass_number) for op in computed(trace)] == [("boundary", 1), ("boundary", 2)]
    assert list(passes(trace).values()) == [2]


@row("`nn.MultiheadAttention` (many `linear` calls inside torch's code)")
def attention() -> None:
    trace = traced(models.CrossAttends().train(), floats(2, 3, 4), floats(2, 5, 3), floats(2, 5, 5))
    assert passes_of(trace, "linear") == {"linear_1": 1, "linear_2": 1, "linear_3": 1, "linear_4": 1}
    weights = [addresses(trace[f"linear_{n}"].params)[0] for n in (1, 2, 3, 4)]
    names = ["q_proj_weight", "k_proj_weight", "v_proj_weight", "out_proj.weight"]
    assert weights == [f"attention.{name}" for name in names]
    # one generator expression transposes query, key and value
    assert {label for label, count in passes(trace).items() if count > 1} == {"transpose_1"}


@row("Two separate traces of one model")
def two_traces() -> None:
    model = models.Looped()
    first, second = traced(model), traced(model)
    assert op_labels(first) == op_labels(second)
    assert passes(second) == {"tanh_1": 3, "mul_1": 3}
