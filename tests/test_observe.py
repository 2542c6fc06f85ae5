"""Observe, never alter: what a run gives and leaves is what it would be without a capture."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests import models
from tests.programs.containers import GivesContainer, TakesNestedInput, leaves
from tests.programs.examples import EXAMPLES, floats, nested_input
from tests.programs.last_writers import equal_bits
from tests.programs.reading import lint, op_labels, parent_labels, passes

SEED = 7


class Run:
    """One forward of an example, prepared so that every run of it starts equal."""

    def __init__(self, name: str, train: bool, grad: bool) -> None:
        example = EXAMPLES[name]
        torch.manual_seed(5)
        self.model = example.build().train(train)
        self.inputs, self.kwargs = example.inputs(), example.kwargs()
        self.grad = grad
        if grad:
            for tensor in self.input_tensors():
                tensor.requires_grad_(tensor.is_floating_point())
        torch.manual_seed(SEED)

    def input_tensors(self) -> list[Tensor]:
        return tensors_of([self.inputs, self.kwargs])

    def plain(self) -> Any:
        with torch.set_grad_enabled(self.grad):
            return self.model(*self.inputs, **self.kwargs)

    def traced(self) -> Any:
        options = tl.options.CaptureOptions(seed=SEED)
        torch.manual_seed(0)  # the trace has a seed of its own
        with torch.set_grad_enabled(self.grad):
            trace = tl.trace(self.model, self.inputs, input_kwargs=self.kwargs, capture=options)
        lint(trace)
        return trace.output

    def in_block(self) -> Any:
        with torch.set_grad_enabled(self.grad), tl.capture(self.model) as trace:
            output = self.model(*self.inputs, **self.kwargs)
        lint(trace)
        return output

    def gradients(self, output: Any) -> list[Tensor | None]:
        wanted = [t for t in [*self.model.parameters(), *self.input_tensors()] if t.requires_grad]
        roots = [t for t in tensors_of(output) if t.requires_grad]
        if not roots or not wanted:
            return []
        torch.autograd.backward([(t * t).sum() for t in roots])
        return [t.grad for t in wanted]


def tensors_of(value: Any) -> list[Tensor]:
    return [leaf for leaf in leaves(value).values() if isinstance(leaf, Tensor)]


def assert_equal_tensors(found: Any, expected: Any) -> None:
    one = {path: leaf for path, leaf in leaves(found).items() if isinstance(leaf, Tensor)}
    other = {path: leaf for path, leaf in leaves(expected).items() if isinstance(leaf, Tensor)}
    assert list(one) == list(other)
    for path, tensor in one.items():
        assert equal_bits(tensor, other[path]), path
        assert tensor.stride() == other[path].stride(), path
        assert tensor.requires_grad == other[path].requires_grad, path
        assert type(tensor) is type(other[path]), path


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no grad"])
@pytest.mark.parametrize("train", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("way", ["traced", "in_block"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_forward_gives_the_same_bits(name: str, way: str, train: bool, grad: bool) -> None:
    plain, observed = Run(name, train, grad), Run(name, train, grad)
    torch.manual_seed(SEED)
    expected = plain.plain()
    torch.manual_seed(SEED)
    found = getattr(observed, way)()
    assert type(found) is type(expected)
    assert_equal_tensors(found, expected)
    assert_equal_tensors(observed.input_tensors(), plain.input_tensors())
    assert_equal_tensors(observed.model.state_dict(), plain.model.state_dict())
    if grad:
        assert_equal_tensors(observed.gradients(found), plain.gradients(expected))


def test_fused_encoder_layers_are_kept() -> None:
    model = EXAMPLES["encoder"].build().eval()
    with torch.no_grad():
        trace = tl.trace(model, EXAMPLES["encoder"].inputs())
    assert [op.kind for op in trace.ops] == ["input", "boundary", "boundary", "output"]


# ---- random state --------------------------------------------------------------------------------


def random_states() -> tuple[Any, ...]:
    return torch.get_rng_state().tolist(), random.getstate(), numpy.random.get_state()[1].tolist()


def draw_everywhere(x: Tensor) -> Tensor:
    return x + torch.rand(4) + random.random() + float(numpy.random.rand())


def seed_everywhere(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed)


@pytest.mark.parametrize("seed", [None, SEED])
def test_trace_restores_the_callers_random_state(seed: int | None) -> None:
    before = random_states()
    tl.trace(draw_everywhere, floats(4), capture=tl.options.CaptureOptions(seed=seed))
    assert random_states() == before


def test_trace_restores_the_random_state_after_an_error() -> None:
    def fail(x: Tensor) -> Tensor:
        draw_everywhere(x)
        raise LookupError("deliberate")

    before = random_states()
    with pytest.raises(LookupError, match="deliberate"):
        tl.trace(fail, floats(4))
    assert random_states() == before


def test_the_seed_of_a_trace_reproduces_it() -> None:
    traces = [tl.trace(draw_everywhere, floats(4)) for _ in range(2)]
    assert torch.equal(traces[0].output, traces[1].output)
    again = tl.options.CaptureOptions(seed=traces[0].options.seed)
    torch.rand(1)
    assert torch.equal(tl.trace(draw_everywhere, floats(4), capture=again).output, traces[0].output)


def test_another_caller_state_gives_another_seed() -> None:
    torch.manual_seed(1)
    first = tl.trace(draw_everywhere, floats(4))
    torch.manual_seed(2)
    second = tl.trace(draw_everywhere, floats(4))
    assert first.options.seed != second.options.seed
    assert not torch.equal(first.output, second.output)


def test_a_block_lets_random_state_flow() -> None:
    seed_everywhere(SEED)
    expected, state = draw_everywhere(floats(4)), random_states()
    seed_everywhere(SEED)
    with tl.capture(draw_everywhere):
        found = draw_everywhere(floats(4))
    assert torch.equal(found, expected)
    assert random_states() == state


def test_a_block_with_a_seed_restores_the_random_state() -> None:
    before = random_states()
    outputs = []
    for _ in range(2):
        torch.rand(1)
        state = random_states()
        with tl.capture(draw_everywhere, capture=tl.options.CaptureOptions(seed=SEED)):
            outputs.append(draw_everywhere(floats(4)))
        assert random_states() == state != before
    assert torch.equal(*outputs)


# ---- exceptions: the autouse fixture proves that nothing stays -----------------------------------

ERRORS = [
    ValueError("deliberate"),
    KeyboardInterrupt("deliberate"),
    SystemExit("deliberate"),
    GeneratorExit("deliberate"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_reaches_the_caller_unchanged(error: BaseException) -> None:
    model = models.Raises(error)
    before = module_state(model)
    with pytest.raises(type(error), match="deliberate") as caught:
        tl.trace(model, floats(3, 4))
    assert caught.value is error
    assert error.__cause__ is None and error.__context__ is None
    assert module_state(model) == before
    assert torch.equal(models.Looped()(floats(2, 4)), tl.trace(models.Looped(), floats(2, 4)).output)
    error.__traceback__ = None


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_what_ran_before_an_error_is_readable(error: BaseException) -> None:
    model = models.Raises(error)
    x = floats(3, 4)
    with pytest.raises(type(error), match="deliberate"), tl.capture(model) as trace:
        model(x)
    assert trace.status == "failed"
    assert type(error).__name__ in str(trace.error)
    assert op_labels(trace) == "linear_1:1 tanh_1:1"
    assert torch.equal(trace["linear_1"].out, model.linear(x))
    lint(trace)
    error.__traceback__ = None


def test_an_error_in_the_block_itself_ends_it() -> None:
    model, x = models.Looped(), floats(2, 4)
    with pytest.raises(RuntimeError, match="shape"), tl.capture(model) as trace:
        model(x).reshape(7)
    assert trace.status == "failed" and passes(trace) == {"tanh_1": 3, "mul_1": 3}


def test_an_error_that_the_model_handles_is_no_failure() -> None:
    class Recovers(models.Wrapper):
        def forward(self, x: Tensor) -> Tensor:
            try:
                return self.inner(x)
            except ValueError:
                return torch.cos(x)

    trace = tl.trace(Recovers(models.Raises(ValueError("deliberate"))), floats(3, 4))
    assert trace.status == "complete"
    assert op_labels(trace) == "linear_1:1 tanh_1:1 cos_1:1"
    assert trace["cos_1"].module.address == ""


def test_an_error_in_a_hook_leaves_nothing() -> None:
    def refuse(module: nn.Module, args: Any, output: Any) -> None:
        raise LookupError("deliberate")

    model = models.ReusedBlock()
    model.block.first.register_forward_hook(refuse)
    with pytest.raises(LookupError, match="deliberate"):
        tl.trace(model, floats(2, 4))


# ---- the model's own hooks and attributes --------------------------------------------------------


def module_state(model: nn.Module) -> list[Any]:
    """Every attribute of every module by identity, and what hangs on its parameters."""
    state: list[Any] = []
    for name, module in model.named_modules():
        for key, value in vars(module).items():
            content = [(k, id(v)) for k, v in value.items()] if isinstance(value, dict) else []
            state.append((name, key, id(value), content))
    state += [(name, vars(p), p._version) for name, p in model.named_parameters()]
    return state


def test_modules_keep_their_attributes_and_hooks() -> None:
    calls: list[str] = []
    model = models.ReusedBlock()
    model.block.register_forward_pre_hook(lambda module, args: calls.append("pre"))
    model.block.register_forward_hook(lambda module, args, output: calls.append("post"))
    model.block.register_full_backward_hook(lambda module, grad_in, grad_out: calls.append("backward"))
    before = module_state(model)
    trace = tl.trace(model, floats(2, 4).requires_grad_())
    assert module_state(model) == before
    assert calls == ["pre", "post"] * 3
    trace.output.sum().backward()
    assert calls == ["pre", "post"] * 3 + ["backward"] * 3


def test_tensors_get_no_attributes() -> None:
    x = floats(2, 4)
    x.tag = "mine"
    with tl.capture(models.Looped()) as trace:
        y = x * 2
    assert vars(x) == {"tag": "mine"} and vars(y) == {}
    assert vars(trace["mul_1"].out) == {}


def test_global_hooks_of_the_user_keep_working() -> None:
    calls: list[str] = []
    handle = nn.modules.module.register_module_forward_hook(
        lambda module, args, output: calls.append(type(module).__name__)
    )
    try:
        tl.trace(models.StackedBlocks(), floats(2, 4))
        nn.Tanh()(floats(2))
    finally:
        handle.remove()
    assert calls == ["Linear", "Linear", "ResidualBlock"] * 3 + ["StackedBlocks", "Tanh"]


# ---- ways to call a model ------------------------------------------------------------------------


def test_nested_inputs_are_inputs_once_each() -> None:
    (batch,) = nested_input()
    scale = floats(4)
    trace = tl.trace(TakesNestedInput(), (batch,), input_kwargs={"scale": scale, "flip": True})
    assert [op.label for op in trace.inputs] == ["input_1:1", "input_2:1", "input_3:1", "input_4:1"]
    assert parent_labels(trace["add_1:1"]) == ["input_1:1", "mul_1:1"]
    assert torch.equal(trace["neg_1"].args[0].out, scale)


def test_a_tensor_given_twice_is_one_input() -> None:
    x = floats(4)
    trace = tl.trace(lambda a, b: a * b, (x, x))
    assert [op.label for op in trace.inputs] == ["input_1:1"]
    assert parent_labels(trace["mul_1:1"]) == ["input_1:1"]


def test_a_list_is_one_argument_and_a_tuple_the_arguments() -> None:
    a, b = floats(4), floats(3, 4)
    assert torch.equal(tl.trace(lambda pair: pair[0] * pair[1], [a, b]).output, a * b)
    assert torch.equal(tl.trace(lambda pair: pair[0] * pair[1], ((a, b),)).output, a * b)
    assert torch.equal(tl.trace(lambda a, b: a * b, (a, b)).output, a * b)
    assert torch.equal(tl.trace(lambda: torch.ones(2), ()).output, torch.ones(2))
    assert tl.trace(lambda nothing: torch.ones(2) if nothing is None else nothing, None).output.sum() == 2


def test_containers_of_the_output_are_kept() -> None:
    x = floats(3, 4)
    model = GivesContainer(lambda low, high: {"low": low, "rest": [high, (low, "name")]})
    output = tl.trace(model, x).output
    assert list(leaves(output)) == ["['low']", "['rest'][0]", "['rest'][1][0]", "['rest'][1][1]"]
    assert output["rest"][1][1] == "name" and output["rest"][1][0] is output["low"]


def test_a_model_called_from_a_generator() -> None:
    model = models.Looped()

    def outputs() -> Iterator[Tensor]:
        for k in range(3):
            yield model(floats(2, 4) + k)

    with tl.capture(model) as trace:
        total = sum(outputs())
    assert trace.modules[""].num_calls == 3
    assert trace["tanh_1"].num_passes == 9
    assert torch.equal(trace["add_2:2"].out, total)


def test_a_generator_that_outlives_the_block_is_not_captured() -> None:
    def steps() -> Iterator[Tensor]:
        while True:
            yield torch.sin(torch.ones(2))

    running = steps()
    with tl.capture(models.Looped()) as trace:
        next(running)
    next(running)
    assert [op.type for op in trace.ops] == ["ones", "sin"]
    running.close()


def test_modes_of_the_caller_are_seen_and_kept() -> None:
    model = nn.Linear(4, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        trace = tl.trace(model, floats(2, 4))
        assert torch.is_autocast_enabled("cpu")
    assert trace["linear_1"].dtype == torch.bfloat16
    with torch.inference_mode():
        trace = tl.trace(model, floats(2, 4))
    assert trace["linear_1"].grad_enabled is False
    assert trace["linear_1"].out.is_inference()
