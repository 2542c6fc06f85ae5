"""What a trace would keep, told beforehand: the same layers, the same bytes, and nothing touched."""

from __future__ import annotations

import copy
import functools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

import torchlens as tl
from tests.programs.examples import EXAMPLES, Example, floats, one
from tests.programs.memory import MIB, resident_peak
from tests.zoo.torchvision_ops import import_torchvision
from torchlens._api.planning import plan
from torchlens.errors import InputError, MissingKeyError, NestedCaptureError, PlanError, UnsupportedModelError
from torchlens.report.plan import Plan, plan_of
from torchlens.report.text import as_text

FLOAT = 4
READ_VALUES = ("BranchesOnValues", "ReadsValues")
WRITE_THROUGH_MASKS = ("WritesThroughViews",)
A = floats(4, 4)


def agree(model: Callable[..., Any], *inputs: Any, exact: bool = True, **kwargs: Any) -> Plan:
    """Plan a model, then trace it: layer by layer and in total they must say the same. The plan."""
    planned = plan(model, inputs, input_kwargs=kwargs)
    trace = tl.trace(model, inputs, input_kwargs=kwargs)
    kept = plan_of(trace._reader, trace.copied_bytes)
    assert [layer.label for layer in planned.layers] == [layer.layer_label for layer in trace.layers]
    assert planned.layers == kept.layers
    memory = trace.memory
    assert (planned.kept_bytes, planned.given_bytes, planned.parameter_bytes) == (
        memory.kept_bytes,
        memory.given_bytes,
        memory.parameter_bytes,
    )
    assert planned.copied_bytes == memory.copied_bytes or not exact
    return planned


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name not in READ_VALUES])
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_every_small_model_is_planned_as_it_is_traced(name: str) -> None:
    example = EXAMPLES[name]
    agree(example.build(), *example.inputs(), exact=name not in WRITE_THROUGH_MASKS, **example.kwargs())


def test_the_figures_of_a_plan_by_hand() -> None:
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(inplace=True), nn.Linear(32, 2))
    planned = agree(model, torch.ones(4, 8))
    assert [(row.label, row.address, row.func_name, row.shape, row.nbytes) for row in planned.layers] == [
        ("input_1", "", "input", (4, 8), 4 * 8 * FLOAT),
        ("linear_1", "0", "linear", (4, 32), 4 * 32 * FLOAT),
        ("relu_1", "1", "relu_", (4, 32), 0),
        ("linear_2", "2", "linear", (4, 2), 4 * 2 * FLOAT),
        ("output_1", "", "output", (4, 2), 0),
    ]
    assert planned["relu_1"].alone_bytes == planned["linear_1"].alone_bytes == 4 * 32 * FLOAT
    assert planned["relu_1"].storages == planned["linear_1"].storages
    assert planned.kept_bytes == (4 * 32 + 4 * 2) * FLOAT and planned.copied_bytes == 4 * 32 * FLOAT
    assert planned.parameter_bytes == (8 * 32 + 32 + 32 * 2 + 2) * FLOAT
    assert planned["linear_1"].dtype is torch.float32


class PlainTensors(nn.Module):
    """Tensors that are no parameters or buffers, and a parameter that no module registered."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.ones(4)
        self.held = {"scale": [torch.ones(4), nn.Parameter(torch.ones(4))]}

    def forward(self, x: Tensor) -> Tensor:
        return x * self.table + self.held["scale"][0] * self.held["scale"][1]


class AsksForDevice(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x.sin() if x.device.type == "cpu" and not x.is_cuda and not x.is_meta else x.cos().cos()
        return y + torch.arange(x.shape[-1]) + torch.zeros(4, device=y.device) + torch.tensor([1.0, 2, 3, 4])


class KnowsConstants(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * int(torch.tensor(3))


class MadeOfHostData(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.from_numpy(np.ones(4, dtype=np.float32)) + torch.Tensor([1, 2, 3, 4])


class Remembers(nn.Module):
    """Leaves results in attributes, lists and buffers, through itself, a closure and a hook."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("cache", torch.zeros(3, 4))
        self.register_buffer("replaced", torch.zeros(4))
        self.seen: list[Tensor] = []
        self.calls = 0
        self.last: Tensor | None = None
        self.twice = lambda x: self.linear(self.linear(x))
        seen = self.seen
        self.linear.register_forward_hook(lambda module, args, out: seen.append(out))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        for t in range(3):
            self.cache[t] = x[t].detach()
        self.replaced = self.replaced + 1
        self.last = self.twice(x)
        return self.last + self.cache.sum()


OUTSIDE = nn.Linear(4, 4)
CONSTANT = torch.ones(4, 4)


def around(x: Tensor) -> Tensor:
    return OUTSIDE(x) @ CONSTANT.T + OUTSIDE.weight.t()


def convolution() -> nn.Module:
    layers = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Dropout(), nn.MaxPool2d(2)
    return nn.Sequential(*layers)


HARD: dict[str, Example] = {
    "plain tensors": Example(PlainTensors, one(4, 4)),
    "branches on the device": Example(AsksForDevice, one(4, 4)),
    "a constant's value": Example(KnowsConstants, one(4, 4)),
    "host data": Example(MadeOfHostData, one(4, 4)),
    "leaves things behind": Example(Remembers, one(4, 4)),
    "a function around a global module": Example(lambda: around, one(4, 4)),
    "a partial": Example(lambda: functools.partial(torch.mul, other=torch.ones(4)), one(4, 4)),
    "a bound method": Example(lambda: nn.Linear(4, 4).forward, one(4, 4)),
    "batch norm and dropout in training": Example(lambda: convolution().train(), one(2, 3, 8, 8)),
    "in eval": Example(lambda: convolution().eval(), one(2, 3, 8, 8)),
    "out=": Example(lambda: lambda x: torch.add(x, x, out=torch.empty(4, 4)), one(4, 4)),
    "indexed writes": Example(
        lambda: (
            lambda x: x.clone().index_fill_(0, torch.tensor([1]), 3.0).index_put_((torch.tensor(0),), x[1])
        ),
        one(4, 4),
    ),
    "expanded": Example(lambda: lambda x: x[:1].expand(4, 4) + x.t() + x.new_zeros(0).sum(), one(4, 4)),
    "inference mode": Example(lambda: torch.inference_mode()(lambda x: x.sin().add_(1)), one(4, 4)),
    "autocast": Example(lambda: torch.autocast("cpu", dtype=torch.bfloat16)(around), one(4, 4)),
    "jagged": Example(
        lambda: lambda x: x.sin(),
        lambda: (torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged),),
    ),
    "half": Example(lambda: nn.Linear(4, 4).to(torch.bfloat16), lambda: (A.bfloat16(),)),
}


@pytest.mark.parametrize("name", HARD)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_hard_models_too(name: str) -> None:
    agree(HARD[name].build(), *HARD[name].inputs())


@pytest.mark.parametrize("grad", [True, False])
def test_fused_kernels_are_planned_where_they_run(grad: bool) -> None:
    layer = nn.TransformerEncoderLayer(12, 4, 16, batch_first=True).eval()
    with torch.set_grad_enabled(grad):
        planned = agree(layer, floats(2, 5, 12))
    kernels = [row for row in planned.layers if row.func_name == "_transformer_encoder_layer_fwd"]
    assert len(kernels) == (0 if grad else 1)


def test_attention_without_weights_is_planned() -> None:
    attention = nn.MultiheadAttention(12, 4, batch_first=True).eval()
    x = floats(2, 5, 12)
    with torch.no_grad():
        agree(functools.partial(attention, need_weights=False), x, x, x)


def test_a_boolean_mask_counts_whole() -> None:
    def masked(x: Tensor) -> Tensor:
        y = x * 1
        y[y > 0] = 0
        return y

    assert agree(masked, A, exact=False).copied_bytes == 16 * FLOAT


# ---- nothing is touched --------------------------------------------------------------------------


def state_of(model: nn.Module) -> list[Any]:
    """Bits, version counters, flags and attributes of a model."""
    tensors = [*model.named_parameters(), *model.named_buffers()]
    state: list[Any] = [
        (name, id(t), t._version, t.requires_grad, t.grad, t.numpy(force=True).tobytes())
        for name, t in tensors
    ]
    for name, module in model.named_modules():
        hooks = list(module._forward_hooks.items()), list(module._forward_pre_hooks.items())
        kept = {key: value for key, value in vars(module).items() if not isinstance(value, (dict, list))}
        state.append((name, id(module), module.training, hooks, kept))
    return state


@pytest.mark.parametrize("build", [Remembers, convolution, PlainTensors])
def test_the_model_its_inputs_and_random_state_stay_as_they_are(build: Callable[[], nn.Module]) -> None:
    model = build().train()
    x = floats(2, 3, 8, 8) if build is convolution else floats(4, 4)
    plan(model, x)  # which imports
    before, bits, version = state_of(model), x.clone(), x._version
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    plan(model, x)
    assert state_of(model) == before
    assert torch.equal(x, bits) and x._version == version
    assert torch.equal(torch.get_rng_state(), states[0]) and random.getstate() == states[1]
    assert (np.random.get_state()[1] == states[2]).all()
    if isinstance(model, Remembers):
        assert (model.calls, model.seen, model.last) == (0, [], None)
        assert not model.cache.any() and not model.replaced.any()


def test_an_input_that_is_written_stays_as_it_is() -> None:
    x, held = torch.ones(4), {"list": [torch.ones(4)]}

    def writes(x: Tensor, held: dict[str, list[Tensor]]) -> Tensor:
        held["list"].append(x)
        return x.mul_(2) + held["list"][0].add_(1)

    plan(writes, (x, held))
    assert torch.equal(x, torch.ones(4)) and x._version == 0
    assert len(held["list"]) == 1 and held["list"][0]._version == 0


def test_a_real_tensor_that_nothing_can_stand_in_for_is_not_written() -> None:
    class Holder:
        counter = torch.zeros(1)

    def counts(x: Tensor) -> Tensor:
        Holder.counter.add_(1)
        return x * 2

    with pytest.raises(PlanError, match=r"`add_` would write into a real tensor of shape \(1,\)"):
        plan(counts, A)
    assert Holder.counter._version == 0


class Uncopyable(nn.Module):
    """Holds a generator, which nothing can copy, and its parts under several names."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.numbers = (number for number in range(3))
        self.norm = nn.BatchNorm1d(4)
        self.parts = [self.linear, {"norm": (self.norm, self.numbers)}]

    def forward(self, x: Tensor) -> Tensor:
        return self.parts[1]["norm"][0](self.parts[0](x))


@pytest.mark.parametrize(
    "wrap", [lambda part: part, nn.Sequential, lambda part: nn.Sequential(nn.ReLU(), part)]
)
def test_what_cannot_be_copied_is_shared(wrap: Callable[[nn.Module], nn.Module]) -> None:
    model = wrap(Uncopyable()).train()
    with pytest.raises(TypeError, match="generator"):
        copy.deepcopy(model)
    before = state_of(model)
    planned = plan(model, A)
    assert state_of(model) == before
    assert [row.address.rpartition(".")[2] for row in planned.layers if row.func_name == "linear"] == [
        "linear"
    ]
    agree(model, A)


def test_nothing_is_computed_or_allocated() -> None:
    wide = nn.Sequential(nn.Linear(8, 1 << 14), nn.ReLU(), nn.Linear(1 << 14, 8))
    plan(wide, torch.ones(1, 8))
    before = resident_peak()
    planned = plan(wide, torch.ones(1, 8).expand(1 << 20, 8))
    assert resident_peak() - before < 50 * MIB
    assert planned["linear_1"].nbytes == (1 << 20) * (1 << 14) * FLOAT


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Decoder(nn.Module):
    def __init__(self, width: int, depth: int, words: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids) + torch.arange(ids.shape[-1], device=ids.device)[:, None]
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def test_thirty_billion_parameters_on_meta() -> None:
    with torch.device("meta"):
        model = Decoder(width=8192, depth=56, words=50_000)
    before = resident_peak()
    planned = plan(model, torch.zeros(1, 512, dtype=torch.long))
    assert resident_peak() - before < 200 * MIB
    weights = 56 * (2 * 4 * 8192**2 + 5 * 8192 + 2 * 8192) + 50_000 * 8192
    assert planned.parameter_bytes == weights * FLOAT > 30e9 * FLOAT
    up = planned["linear_1"]
    assert (up.num_passes, up.address, up.nbytes) == (1, "blocks.0.up", 512 * 4 * 8192 * FLOAT)
    assert all(parameter.is_meta for parameter in model.parameters())


def test_a_small_one_on_meta_is_planned_as_a_real_one_is_traced() -> None:
    with torch.device("meta"):
        blank = Decoder(width=8, depth=2, words=11)
    ids = torch.zeros(1, 5, dtype=torch.long)
    assert plan(blank, ids) == agree(Decoder(width=8, depth=2, words=11), ids)
    assert plan(blank, ids.to("meta")) == plan(blank, ids)


# ---- errors --------------------------------------------------------------------------------------


def branch(x: Tensor) -> Tensor:
    if x.sum() > 0:
        return x * 2
    return x


NEED_VALUES: dict[str, tuple[Callable[..., Any], str]] = {
    "branch": (branch, r"a value is read .*test_planning.py:\d+ in branch, `if x.sum\(\) > 0:`"),
    "item": (lambda x: x * x.sum().item(), "a value is read .*test_planning.py"),
    "tolist": (lambda x: x * x.tolist()[0][0], "a value is read .*test_planning.py"),
    "nonzero": (
        lambda x: x.nonzero(),
        "`nonzero` gives a tensor whose size depends on values.*test_planning.py",
    ),
    "mask": (lambda x: x[x > 0], "whose size depends on values.*test_planning.py"),
    "numpy": (lambda x: x + torch.from_numpy(x.numpy()), "raised RuntimeError: .*numpy.*test_planning.py"),
    "sparse": (lambda x: torch.sparse.mm(x.to_sparse(), x), "test_planning.py"),
    "its own error": (lambda x: x @ torch.ones(5, 5), "the model raised RuntimeError.*test_planning.py"),
}


@pytest.mark.parametrize("name", NEED_VALUES)
def test_what_needs_values_says_where(name: str) -> None:
    model, message = NEED_VALUES[name]
    with pytest.raises(PlanError, match=message) as raised:
        plan(model, A)
    assert "trace a small input instead" in str(raised.value)
    assert raised.value.__cause__ is not None


def test_an_operator_without_a_rule_is_named() -> None:
    @torch.library.custom_op("torchlens_tests::unplanned", mutates_args=())
    def unplanned(x: Tensor) -> Tensor:
        return x.clone()

    with pytest.raises(PlanError, match=r"at .*test_planning\.py:\d+ in <lambda>"):
        plan(lambda x: unplanned(x), A)


def test_tensors_without_a_stand_in_are_named() -> None:
    quantized = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
    with pytest.raises(PlanError, match=r"a Tensor of shape \(3,\), torch.qint8"):
        plan(lambda x: x.dequantize(), quantized)
    with pytest.raises(PlanError, match="a lazy module, whose parameters have no size"):
        plan(nn.LazyLinear(3), A)


def test_what_a_trace_refuses_is_refused() -> None:
    with pytest.raises(InputError, match="model is a int"):
        plan(5, A)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedModelError, match="TorchScript"):
        plan(torch.jit.trace(nn.Linear(2, 2), torch.ones(1, 2)), torch.ones(1, 2))

    def nested(x: Tensor) -> Tensor:
        with pytest.raises(NestedCaptureError, match="already open"):
            plan(nn.ReLU(), x)
        return x

    tl.trace(nested, A)


# ---- reading a plan ------------------------------------------------------------------------------


def test_text() -> None:
    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 100)

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(2):
                y = self.linear(x).relu_()
            return y.sum()

    assert as_text(plan(Small(), torch.ones(8, 4)), 80) == (
        """\
Small · planned, 5 layers
values     6.40 kB kept by a trace of these layers
copies     6.40 kB saved before in-place writes
given      128 B of inputs, sources and buffers, held elsewhere too
parameters 2.00 kB, held by the model

layer        module  output             kept    alone
linear_1 ×2  linear  8×100 float32   6.40 kB  6.40 kB
input_1              8×4 float32       128 B    128 B
sum_1                scalar float32      4 B      4 B
relu_1 ×2            8×100 float32       0 B  6.40 kB
output_1             scalar float32      0 B      4 B"""
    )


def test_the_largest_come_first_and_the_rest_is_counted() -> None:
    model = nn.Sequential(*(nn.Linear(width, width + 1) for width in range(1, 40)))
    planned = plan(model, torch.ones(2, 1))
    largest = planned.largest(3)
    assert [row.shape for row in largest] == [(2, 40), (2, 39), (2, 38)]
    assert [row.nbytes for row in planned.largest(100)] == sorted(
        (row.nbytes for row in planned.layers), reverse=True
    )
    hidden = sum(row.nbytes for row in planned.largest(100)[20:])
    assert str(planned).splitlines()[-1] == f"and 21 more layers with {hidden / 1000:.2f} kB"
    assert planned._repr_html_().startswith("<pre")


def test_a_missing_label_names_what_is_near() -> None:
    with pytest.raises(MissingKeyError, match="no layer is called 'linear_3'; nearest: 'linear_1'"):
        plan(nn.Linear(4, 4), A)["linear_3"]


def test_a_plan_holds_no_tensor() -> None:
    planned = plan(nn.Linear(4, 4), A)
    assert not any(
        isinstance(value, (Tensor, FakeTensor))
        for row in planned.layers
        for value in (row.shape, row.dtype, row.storages)
    )


# ---- real ones -----------------------------------------------------------------------------------


def gpt2() -> tuple[nn.Module, Tensor]:
    import_torchvision()
    transformers = pytest.importorskip("transformers")
    return transformers.GPT2LMHeadModel(transformers.GPT2Config()).eval(), torch.arange(32)[None]


def test_gpt2_small() -> None:
    model, ids = gpt2()
    with torch.no_grad():
        planned = agree(model, ids)
    # 12 layers: a block's projections alone keep 3 + 1 + 4 + 1 times 32 x 768 numbers
    assert planned.kept_bytes > 12 * 9 * 32 * 768 * FLOAT
    assert planned.largest(1)[0].label == planned["linear_1"].label
    assert planned["linear_1"].nbytes == 32 * 50257 * FLOAT
