"""Checkpoints, transforms, errors in odd places, random state: what is recorded and what is left behind."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import torchlens as tl
from tests import models
from tests.programs.reading import floats, lint, op_labels

# ---- backward inside a block ---------------------------------------------------------------------


@pytest.mark.parametrize("reentrant", [True, False], ids=["reentrant", "non-reentrant"])
def test_recomputation_is_not_recorded_twice(reentrant: bool) -> None:
    block = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    x = floats(3, 4).requires_grad_()
    checkpoint(block, x, use_reentrant=reentrant).sum().backward()
    expected, x.grad = x.grad, None
    with tl.capture(block) as trace:
        checkpoint(block, x, use_reentrant=reentrant).sum().backward()
    lint(trace)
    assert op_labels(trace) == "linear_1:1 tanh_1:1 sum_1:1"
    assert trace.modules[""].num_calls == 1 and len(trace.module_calls) == 3
    assert torch.equal(x.grad, expected)
    assert trace.notes == ("1 backward call ran during the capture; what backward does is no forward op.",)
    assert [op.label for op in trace["sum_1"].parents] == ["tanh_1:1"]


def test_gradients_taken_in_the_model_are_one_op() -> None:
    def energy(x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            (force,) = torch.autograd.grad((x**2).sum(), x)
        return force * 2

    trace = tl.trace(energy, floats(3))
    assert torch.equal(trace.output, floats(3) * 4)
    assert op_labels(trace) == "detach_1:1 requires_grad_1:1 pow_1:1 sum_1:1 grad_1:1 mul_1:1"
    assert trace.provenance.verified
    assert trace["grad_1:1"].kind == "boundary"
    assert [op.label for op in trace["grad_1:1"].parents] == ["sum_1:1", "requires_grad_1:1"]


def test_a_backward_of_one_s_own_is_not_recorded() -> None:
    x = floats(3, 4).requires_grad_()
    with tl.capture(models.CustomBackward()) as trace:
        y = models.CustomBackward()(x)
        y.sum().backward()
    assert op_labels(trace) == "sin_1:1 mul_1:1 add_1:1 sum_1:1"
    assert torch.allclose(x.grad, 2 * torch.cos(x))


def test_double_backward_under_a_block() -> None:
    x = floats(3).requires_grad_()
    with tl.capture(nn.Identity()) as trace:
        (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        first.sum().backward()
    assert torch.allclose(x.grad, 6 * x)
    assert "2 backward calls" in trace.notes[0]


# ---- transforms ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("transform", "name"),
    [
        (lambda f, x: torch.func.vmap(f)(x), "vmap"),
        (lambda f, x: torch.func.grad(lambda t: f(t).sum())(x), "grad"),
        (lambda f, x: torch.func.jacrev(f)(x), "jacrev"),
        (lambda f, x: torch.func.jacfwd(f)(x), "jacfwd"),
        (lambda f, x: torch.func.hessian(lambda t: f(t).sum())(x), None),
        (lambda f, x: torch.func.vjp(f, x)[0], "vjp"),
        (lambda f, x: torch.func.jvp(f, (x,), (x,))[1], "jvp"),
        (lambda f, x: torch.func.vmap(torch.func.grad(lambda t: f(t).sum()))(x), "vmap"),
    ],
    ids=["vmap", "grad", "jacrev", "jacfwd", "hessian", "vjp", "jvp", "vmap of grad"],
)
def test_a_transform_is_one_op(transform: Any, name: str | None) -> None:
    linear = nn.Linear(4, 4)
    x = floats(2, 4)
    trace = tl.trace(lambda x: transform(lambda row: torch.tanh(linear(row)), x * 1) + 1, x)
    lint(trace)
    assert torch.allclose(trace.output, transform(lambda row: torch.tanh(linear(row)), x) + 1)
    boundary = [op for op in trace.ops if op.is_boundary]
    assert {op.call_index for op in boundary} == {boundary[0].call_index}
    assert name is None or boundary[0].func_name == name
    assert "mul_1:1" in {parent.label for op in boundary for parent in op.parents}
    assert {op.label for op in boundary} & {parent.label for parent in trace["add_1:1"].parents}
    assert "tanh" not in {op.type for op in trace.ops} and len(trace.module_calls) == 0


# ---- errors in odd places ------------------------------------------------------------------------

KINDS = [ValueError, KeyboardInterrupt, StopIteration, GeneratorExit]


def raising(kind: type[BaseException]) -> Any:
    def hook(*args: Any, **kwargs: Any) -> None:
        raise kind("deliberate")

    return hook


REGISTER = ["register_forward_hook", "register_forward_pre_hook"]


@pytest.mark.parametrize("register", REGISTER)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_in_a_hook_ends_the_run_and_leaves_nothing(register: str, kind: type[BaseException]) -> None:
    model = models.ReusedBlock()
    handle = getattr(model.block.second, register)(raising(kind))
    for _ in range(2):
        with pytest.raises(kind, match="deliberate"):
            tl.trace(model, floats(2, 4))
        with pytest.raises(kind, match="deliberate"), tl.capture(model) as trace:
            model(floats(2, 4))
        assert trace.status == "failed"
        lint(trace)
    handle.remove()
    assert len(tl.trace(model, floats(2, 4)).module_calls) == 10


def test_an_error_of_one_block_does_not_reach_the_next() -> None:
    model, x = models.Raises(ValueError("deliberate")), floats(3, 4)
    with tl.capture(model) as trace:
        with pytest.raises(ValueError, match="deliberate"):
            model(x)
        torch.exp(x)
        model.linear(x)
    assert trace.status == "complete"
    assert trace["exp_1"].module_call is None
    assert trace.module_calls["linear:2"].parent is None


def test_an_error_inside_a_transform_leaves_nothing() -> None:
    def fail(row: Tensor) -> Tensor:
        torch.tanh(row)
        raise ValueError("deliberate")

    with pytest.raises(ValueError, match="deliberate"), tl.capture(nn.Identity()) as trace:
        torch.func.vmap(fail)(floats(2, 4))
    assert trace.status == "failed"

    def recover(x: Tensor) -> Tensor:
        with pytest.raises(ValueError, match="deliberate"):
            torch.func.vmap(fail)(x)
        return torch.exp(x)

    assert op_labels(tl.trace(recover, floats(2, 4))) == "exp_1:1"


def test_an_error_inside_an_entered_function_leaves_nothing() -> None:
    def recover(x: Tensor) -> Tensor:
        try:
            torch.nn.functional.cross_entropy(x, x[:, :1])
        except (RuntimeError, ValueError):
            pass
        return torch.nn.functional.normalize(x)

    trace = tl.trace(recover, floats(3, 4))
    lint(trace)
    assert all(
        op.composites in ((), ("normalize",)) or op.composites[0] == "normalize"
        for op in trace.ops
        if op.index > 2
    )


# ---- a default device ----------------------------------------------------------------------------


@pytest.fixture
def default_device_meta() -> Any:
    torch.set_default_device("meta")
    yield
    torch.set_default_device(None)


def test_a_default_device_hides_nothing_and_changes_nothing(default_device_meta: None) -> None:
    def mixed(x: Tensor) -> tuple[Tensor, ...]:
        draws = nn.functional.fractional_max_pool2d(x, 2, output_size=2)
        return torch.ones(3), *torch.unravel_index(x[0, 0, 0].long(), (2, 3)), nn.functional.normalize(draws)

    x = torch.linspace(0, 5, 16, device="cpu").reshape(1, 1, 4, 4)
    trace = tl.trace(mixed, x)
    lint(trace)
    torch.manual_seed(trace.options.seed)
    plain = mixed(x)
    assert [y.device.type for y in trace.output] == [y.device.type for y in plain] == ["meta", *["cpu"] * 3]
    assert all(map(torch.equal, trace.output[1:], plain[1:]))
    inside = {op.type for op in trace.ops if op.composites}
    assert {"rand", "fractional_max_pool2d", "floor_divide", "linalg_vector_norm", "clamp_min"} <= inside
    assert trace["ones_1"].context.default_device == "meta" and trace["ones_1"].composites == ()
    assert torch.get_default_device() == torch.device("meta")


# ---- random state --------------------------------------------------------------------------------


def draw(x: Tensor) -> Tensor:
    return x + torch.rand(3) + random.random()


def test_the_derived_seed_reproduces_the_run_by_hand() -> None:
    state = torch.get_rng_state()
    trace = tl.trace(draw, floats(3))
    assert torch.equal(torch.get_rng_state(), state)
    kept = random.getstate()
    try:
        torch.manual_seed(trace.options.seed)
        random.seed(trace.options.seed)
        assert torch.equal(draw(floats(3)), trace.output)
    finally:
        random.setstate(kept)


def test_random_calls_keep_the_state_before_them() -> None:
    def several(x: Tensor) -> Tensor:
        return torch.rand(3) + torch.nn.functional.dropout(x, 0.5) + torch.rand(3)

    trace = tl.trace(several, floats(3))
    states = trace._record.generators
    rands = [op for op in trace.ops if op.type == "rand"]
    for op in rands:
        ((device, state),) = states[op.call_index]
        generator = torch.Generator().manual_seed(0)
        generator.set_state(state)
        assert device == "cpu" and torch.equal(torch.rand(3, generator=generator), op.out)
    assert len(states) == 3


def test_a_generator_of_one_s_own_is_what_is_kept() -> None:
    generator = torch.Generator().manual_seed(3)
    state = generator.get_state()
    trace = tl.trace(lambda x: x + torch.rand(3, generator=generator), floats(3))
    ((_, kept),) = trace._record.generators[trace["rand_1"].call_index if "rand_1" in trace else 1]
    assert torch.equal(kept, state)


def test_dropout_that_draws_nothing_keeps_no_state() -> None:
    trace = tl.trace(nn.Dropout(0.5).eval(), floats(3))
    assert trace._record.generators == {}


class Passes(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def test_a_mode_that_the_model_leaves_on_stays_and_ours_goes() -> None:
    mode = Passes()

    def run(x: torch.Tensor) -> torch.Tensor:
        mode.__enter__()
        return x + 1

    tl.trace(run, torch.ones(2))
    stack = torch.overrides._get_current_function_mode_stack()
    mode.__exit__(None, None, None)
    assert stack == [mode]


def test_an_error_whose_text_can_not_be_had_comes_through() -> None:
    class WordlessError(Exception):
        def __str__(self) -> str:
            raise ValueError("no words")

    def run(x: torch.Tensor) -> torch.Tensor:
        raise WordlessError

    with pytest.raises(WordlessError):
        tl.trace(run, torch.ones(2))
    with pytest.raises(WordlessError), tl.capture(run) as trace:
        run(torch.ones(2))
    assert trace.error.type_name == "WordlessError"
