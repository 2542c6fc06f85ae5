"""Transforms of `torch.func`: one op each, with everything that they read and wrote."""

from __future__ import annotations

import cProfile
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import (
    functional_call,
    functionalize,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)

import torchlens as tl
from tests.programs.agreement import agrees
from tests.programs.reading import computed, floats, op_labels

WEIGHT = floats(3, 3)


def energy(row: Tensor) -> Tensor:
    return (row * 2).sin().sum()


def through_weight(row: Tensor) -> Tensor:
    return (WEIGHT @ row).sum()


def vjp_twice(x: Tensor) -> tuple[Tensor, Tensor]:
    value, pull = vjp(torch.sin, x)
    return value + 1, pull(value)[0] + pull(x)[0]


def linearized(x: Tensor) -> tuple[Tensor, Tensor]:
    value, push = linearize(lambda row: row.sin() * WEIGHT[0], x)
    return value + 1, push(x * 2)


def scaled_rows(x: Tensor) -> Tensor:
    scale = x.amax() * 2
    return vmap(lambda row: row * scale)(x)


def in_a_dict(x: Tensor) -> Tensor:
    def both(given: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"sum": given["row"] + given["other"].sum(), "row": given["row"]}

    return vmap(both, in_dims=({"row": 0, "other": None},))({"row": x * 1, "other": WEIGHT})["sum"]


def noisy(x: Tensor) -> Tensor:
    return vmap(lambda row: row + torch.randn(3), randomness="different")(x) + 1


def gradient_of_samples(x: Tensor) -> dict[str, Tensor]:
    model = nn.Linear(3, 2)
    params = {name: param.detach() for name, param in model.named_parameters()}

    def loss(params: dict[str, Tensor], sample: Tensor) -> Tensor:
        return functional_call(model, params, (sample[None],)).sum()

    return vmap(grad(loss), in_dims=(None, 0))(params, x)


def ensemble(x: Tensor) -> Tensor:
    models = [nn.Linear(3, 2) for _ in range(2)]
    params, buffers = stack_module_state(models)
    return vmap(lambda p, b: functional_call(models[0], (p, b), (x,)))(params, buffers)


TRANSFORMS: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "vmap": (lambda x: vmap(energy)(x) + 1, "vmap_1:1 add_1:1"),
    "torch.vmap": (lambda x: torch.vmap(energy)(x) + 1, "vmap_1:1 add_1:1"),
    "chunks": (lambda x: vmap(energy, chunk_size=1)(x) + 1, "vmap_1:1 add_1:1"),
    "grad": (lambda x: grad(energy)(x) + 1, "grad_1:1 add_1:1"),
    "grad_and_value": (lambda x: grad_and_value(energy)(x), "grad_and_value_1:1 grad_and_value_2:1"),
    "aux": (lambda x: grad(lambda r: (energy(r), r * 3), has_aux=True)(x), "grad_1:1 grad_2:1"),
    "jacrev": (lambda x: jacrev(energy)(x) + 1, "jacrev_1:1 add_1:1"),
    "jacrev in chunks": (lambda x: jacrev(torch.sin, chunk_size=1)(x) + 1, "jacrev_1:1 add_1:1"),
    "jacfwd": (lambda x: jacfwd(energy)(x) + 1, "jacfwd_1:1 add_1:1"),
    # `hessian(f)` is `jacfwd(jacrev(f))`, and nothing tells them apart
    "hessian": (lambda x: hessian(energy)(x) + 1, "jacfwd_1:1 add_1:1"),
    "jvp": (lambda x: jvp(energy, (x,), (x * 2,)), "mul_1:1 jvp_1:1 jvp_2:1"),
    "vjp and its later calls": (vjp_twice, "vjp_1:1 add_1:1 vjp_2:1 vjp_3:1 add_2:1"),
    "linearize and its later call": (
        linearized,
        "source_1:1 linearize_1:1 add_1:1 mul_1:1 linearize_2:1",
    ),
    "vmap of grad": (lambda x: vmap(grad(energy))(x) * 2, "vmap_1:1 mul_1:1"),
    "vmap of vmap": (lambda x: vmap(vmap(torch.sin))(x) * 2, "vmap_1:1 mul_1:1"),
    "grad of vmap": (lambda x: grad(lambda a: vmap(energy)(a).sum())(x) * 2, "grad_1:1 mul_1:1"),
    "functionalize": (
        lambda x: functionalize(lambda r: r.clone().add_(1))(x) * 2,
        "functionalize_1:1 mul_1:1",
    ),
    "dicts": (in_a_dict, "mul_1:1 source_1:1 vmap_1:1 vmap_2:1"),
    "random numbers": (noisy, "vmap_1:1 add_1:1"),
    "a tensor of the code around": (scaled_rows, "amax_1:1 mul_1:1 vmap_1:1"),
    "a tensor that a function names": (lambda x: vmap(through_weight)(x), "source_1:1 vmap_1:1"),
}


@pytest.mark.parametrize("with_gradients", [False, True], ids=["no grad", "grad"])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_is_one_op(name: str, with_gradients: bool) -> None:
    program, labels = TRANSFORMS[name]
    trace = agrees(lambda: program, floats(2, 3), grad=with_gradients)
    assert op_labels(trace) == labels
    made = [op for op in computed(trace) if op.type in ("vmap", "grad", "jacrev", "jacfwd", "vjp", "jvp")]
    assert all(op.kind == "boundary" and op.parents for op in made)


@pytest.mark.parametrize("program", [gradient_of_samples, ensemble], ids=lambda program: program.__name__)
def test_models_as_functions(program: Callable[[Tensor], Any]) -> None:
    trace = agrees(lambda: program, floats(4, 3))
    assert "vmap_1" in op_labels(trace)


def test_what_a_transform_closes_over_are_its_parents() -> None:
    trace = agrees(lambda: scaled_rows, floats(2, 3))
    assert [op.label for op in trace["vmap_1:1"].parents] == ["input_1:1", "mul_1:1"]


def test_code_without_a_module_name_closes_over_its_names_too() -> None:
    names: dict[str, Any] = {"torch": torch, "weight": floats(3, 3)}
    exec("def rows(x):\n    return torch.func.vmap(lambda row: weight @ row)(x)", names)
    trace = tl.trace(names["rows"], floats(2, 3))
    assert [op.kind for op in trace["vmap_1:1"].parents] == ["input", "source"]


class Inside(nn.Module):
    """Calls modules of its own inside transforms."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        rows = vmap(self.linear)(x)
        slopes = jacrev(lambda row: self.relu(self.linear(row)))(x[0])
        return rows + slopes.sum()


@pytest.mark.parametrize("with_gradients", [False, True], ids=["no grad", "grad"])
def test_modules_inside_are_no_calls_and_their_parameters_are_read(with_gradients: bool) -> None:
    trace = agrees(lambda: nn.Sequential(Inside(), nn.Linear(3, 2)), floats(2, 3), grad=with_gradients)
    assert [call.label for call in trace.module_calls] == [":1", "0:1", "1:1"]
    assert [op.module.address for op in trace.ops if op.type in ("vmap", "jacrev")] == ["0", "0"]
    assert [param.address for param in trace["vmap_1:1"].params] == ["0.linear.weight", "0.linear.bias"]
    assert trace.modules["0.relu"].num_calls == 0


def test_a_transform_that_begins_with_a_module_call() -> None:
    linear = nn.Linear(3, 3)
    trace = agrees(lambda: lambda x: vmap(lambda row: linear(row))(x).relu(), floats(2, 3))
    assert op_labels(trace) == "source_1:1 source_2:1 vmap_1:1 relu_1:1"
    assert len(trace.module_calls) == 0


def writes_an_argument(x: Tensor) -> Tensor:
    total = torch.zeros(2, 3)

    def add(row: Tensor, into: Tensor) -> Tensor:
        into.add_(row)
        return row * 2

    y = vmap(add)(x, total)
    return y + total


def writes_what_it_closes_over(x: Tensor) -> Tensor:
    count = torch.zeros(3)

    def counted(row: Tensor) -> Tensor:
        count.add_(1)
        return row * 2

    y = vmap(counted)(x)
    return y + count


def writes_a_part(x: Tensor) -> Tensor:
    total = torch.zeros(2, 3)

    def add(row: Tensor, into: Tensor) -> Tensor:
        into[:2].copy_(row[:2])
        return row * 2

    y = vmap(add)(x, total)
    return y + total


def writes_twice(x: Tensor) -> Tensor:
    total = torch.ones(2, 3)

    def change(row: Tensor, into: Tensor) -> Tensor:
        into.mul_(3)
        into.add_(row)
        return row * 2

    y = vmap(change)(x, total)
    return y + total


@pytest.mark.parametrize(
    ("program", "before", "after", "parents"),
    [
        (writes_an_argument, torch.zeros(2, 3), floats(2, 3), ["vmap_1:1", "vmap_2:1"]),
        (writes_what_it_closes_over, torch.zeros(3), torch.ones(3), ["vmap_1:1", "vmap_2:1"]),
        (
            writes_a_part,
            torch.zeros(2, 3),
            floats(2, 3) * torch.tensor([1.0, 1.0, 0.0]),
            ["vmap_1:1", "vmap_2:1"],
        ),
        (writes_twice, torch.ones(2, 3), floats(2, 3) + 3, ["vmap_1:1", "vmap_2:1"]),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_what_a_transform_writes_outside_is_an_output_of_it(
    program: Callable[[Tensor], Tensor], before: Tensor, after: Tensor, parents: list[str]
) -> None:
    trace = agrees(lambda: program, floats(2, 3))
    made = trace["zeros_1:1" if "zeros_1:1" in trace else "ones_1:1"]
    assert torch.equal(made.out, before)
    assert torch.equal(trace["vmap_2:1"].out, after)
    assert trace["vmap_2:1"].is_inplace and not trace["vmap_1:1"].is_inplace
    assert [op.label for op in trace["add_1:1"].parents] == parents


class CountsInVmap(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        def counted(row: Tensor) -> Tensor:
            self.count.add_(1)
            return row * 2

        return vmap(counted)(x) + self.count


def test_a_buffer_written_inside_has_a_new_version() -> None:
    trace = agrees(CountsInVmap, floats(2, 3))
    first, second = trace.buffers["count"].versions
    assert torch.equal(first.out, torch.zeros(3)) and torch.equal(second.out, torch.ones(3))
    assert [op.label for op in second.parents] == ["vmap_1:1"]
    assert second.label in [op.label for op in trace["add_1:1"].parents]


def test_gradients_taken_in_the_model_are_one_op() -> None:
    def forces(x: Tensor) -> Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            (force,) = torch.autograd.grad((x**2).sum(), x)
        return force * 2

    trace = agrees(lambda: forces, floats(3))
    assert op_labels(trace).endswith("grad_1:1 mul_1:1")
    assert [op.label for op in trace["grad_1:1"].parents] == ["sum_1:1", "requires_grad_1:1"]


@pytest.mark.parametrize("vectorize", [False, True])
def test_torchs_older_jacobian_is_seen_through(vectorize: bool) -> None:
    jacobian = torch.autograd.functional.jacobian
    trace = agrees(lambda: lambda x: jacobian(torch.sin, x, vectorize=vectorize) + 1, floats(3))
    assert torch.allclose(trace.output, torch.diag(floats(3).cos()) + 1)


# ---- how a transform is followed to its return ---------------------------------------------------


def types(trace: Any) -> list[str]:
    return [op.type for op in trace.ops]


def doubled_and_one(x: Tensor) -> Tensor:
    return vmap(lambda row: row * 2)(x) + 1


def test_a_profiler_written_in_python_goes_on() -> None:
    seen: list[str] = []

    def profiler(frame: Any, event: str, arg: Any) -> None:
        seen.append(event)

    sys.setprofile(profiler)
    try:
        trace = tl.trace(doubled_and_one, torch.ones(2, 3))
        assert sys.getprofile() is profiler
    finally:
        sys.setprofile(None)
    assert types(trace) == ["input", "vmap", "add", "output"]
    assert "return" in seen


@pytest.fixture
def profiler_in_c() -> Iterator[cProfile.Profile]:
    profiler = cProfile.Profile()
    profiler.enable()
    yield profiler
    profiler.disable()


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_profiler_written_in_c_goes_on(name: str, profiler_in_c: cProfile.Profile) -> None:
    program, labels = TRANSFORMS[name]
    trace = tl.trace(program, floats(2, 3))
    assert sys.gettrace() is None
    profiler_in_c.disable()
    assert op_labels(trace) == labels
    assert trace.provenance.verified
    assert "torch_function" in str([entry.code for entry in profiler_in_c.getstats()])


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="cProfile does not take the profiling hook")
def test_beside_a_profiler_in_c_and_a_debugger_the_trace_says_what_it_missed(
    profiler_in_c: cProfile.Profile,
) -> None:
    def debugger(frame: Any, event: str, arg: Any) -> None: ...

    sys.settrace(debugger)
    try:
        trace = tl.trace(doubled_and_one, torch.ones(2, 3))
        assert sys.gettrace() is debugger
    finally:
        sys.settrace(None)
    assert torch.equal(trace.output, torch.full((2, 3), 3.0))
    assert "add" in types(trace)
    assert trace.provenance.verification_reason == "transform_not_followed"


@pytest.mark.parametrize("profiled", [False, True], ids=["", "profiled in C"])
@pytest.mark.parametrize("transform", ["grad", "vmap", "jacrev", "jacfwd"])
def test_a_transform_that_raises_is_no_op_and_recording_goes_on(transform: str, profiled: bool) -> None:
    def fail(x: Tensor) -> Tensor:
        raise ValueError(str((x * 2).shape))

    def run(x: Tensor) -> Tensor:
        with pytest.raises(ValueError, match=r"torch\.Size"):
            getattr(torch.func, transform)(fail)(x)
        return x + 1

    profiler = cProfile.Profile()
    if profiled:
        profiler.enable()
    try:
        assert types(tl.trace(run, torch.ones(3))) == ["input", "add", "output"]
    finally:
        profiler.disable()
    assert sys.gettrace() is None
