"""Operators from libraries, and calls that write into tensors besides what they return."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.library import Library, custom_op

from tests.programs.agreement import agrees
from tests.programs.reading import floats, op_labels, parent_labels

_names = itertools.count()


@pytest.fixture(scope="module")
def operators() -> Iterator[Any]:
    """Operators of one's own, raw and by `custom_op`."""
    name = f"tl_test_{next(_names)}"
    library = Library(name, "DEF")

    def define(schema: str, function: Callable[..., Any], key: str = "CompositeExplicitAutograd") -> None:
        library.define(schema)
        library.impl(schema.partition("(")[0], function, key)

    def write_and_return(x: Tensor, y: Tensor) -> Tensor:
        return x.add_(y)

    def write_and_make(x: Tensor, y: Tensor) -> Tensor:
        x.add_(y)
        return y * 2

    def write_out(x: Tensor, *, out: Tensor) -> Tensor:
        return out.copy_(x * 2)

    define("plus_one(Tensor x) -> Tensor", lambda x: x + 1)
    define("composite(Tensor x) -> Tensor", lambda x: (x * 2).sin(), "CompositeImplicitAutograd")
    define("write_and_return(Tensor(a!) x, Tensor y) -> Tensor(a!)", write_and_return)
    define("write_and_make(Tensor(a!) x, Tensor y) -> Tensor", write_and_make)
    define("write_out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)", write_out)
    define("flat(Tensor(a) x) -> Tensor(a)", lambda x: x.view(-1))
    define("undeclared(Tensor x) -> Tensor", lambda x: x.add_(1) * 2)

    @custom_op(f"{name}::product", mutates_args=())
    def product(a: Tensor, b: Tensor) -> Tensor:
        return a * b

    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        return g * ctx.saved_tensors[1], g * ctx.saved_tensors[0]

    product.register_autograd(
        backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs)
    )
    product.register_autocast("cpu", torch.bfloat16)

    @custom_op(f"{name}::add_into", mutates_args=("a",))
    def add_into(a: Tensor, b: Tensor) -> None:
        a.add_(b)

    @custom_op(f"{name}::add_and_triple", mutates_args=("a",))
    def add_and_triple(a: Tensor, b: Tensor) -> Tensor:
        a.add_(b)
        return a * 3

    @custom_op(f"{name}::two_and_two", mutates_args=("a", "b"))
    def two_and_two(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        a.add_(1)
        b.mul_(2)
        return a * 3, b * 2

    @custom_op(f"{name}::write_list", mutates_args=("xs",))
    def write_list(xs: list[Tensor]) -> Tensor:
        for x in xs:
            x.add_(1)
        return xs[0] * 2

    @custom_op(f"{name}::nothing", mutates_args=())
    def nothing(a: Tensor) -> None: ...

    @custom_op(f"{name}::number", mutates_args=())
    def number(a: Tensor) -> int:
        return 3

    @custom_op(f"{name}::several", mutates_args=())
    def several(a: Tensor) -> list[Tensor]:
        return [a * 1, a * 2]

    yield getattr(torch.ops, name)
    library._destroy()


def autocast_product(o: Any, x: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return o.product(x * 1, x) + 1


def then_read(call: Callable[[Any, Tensor, Tensor], Any]) -> Callable[[Any, Tensor], Any]:
    """Make the call on a fresh tensor, then read that."""

    def program(o: Any, x: Tensor) -> Any:
        y = x * 1
        return call(o, y, x), y + 1

    return program


PURE: dict[str, tuple[Callable[[Any, Tensor], Any], str]] = {
    "custom": (lambda o, x: o.product(x * 1, x) + 1, "mul_1:1 product_1:1 add_1:1"),
    "overload": (lambda o, x: o.product.default(x * 1, x) + 1, "mul_1:1 product_1:1 add_1:1"),
    "autocast": (autocast_product, "mul_1:1 product_1:1 add_1:1"),
    "None": (lambda o, x: (o.nothing(x * 1), x + 1), "mul_1:1 add_1:1"),
    "number": (lambda o, x: o.number(x * 1) * x, "mul_1:1 rmul_1:1"),
    "several": (lambda o, x: o.several(x * 1)[1] + 1, "mul_1:1 several_1:1 several_2:1 add_1:1"),
    "raw": (lambda o, x: o.plus_one(x * 1) + 1, "mul_1:1 plus_one_1:1 add_1:1"),
    "composite": (lambda o, x: o.composite(x * 1) + 1, "mul_1:1 composite_1:1 add_1:1"),
    "view": (lambda o, x: o.flat(x * 1) + 1, "mul_1:1 flat_1:1 add_1:1"),
}


@pytest.mark.parametrize("name", PURE)
def test_an_operator_of_a_library_is_one_op(name: str, operators: Any) -> None:
    program, labels = PURE[name]
    gradients = name in ("custom", "overload", "composite")
    trace = agrees(lambda: lambda x: program(operators, x), floats(2, 3), grad=gradients)
    assert op_labels(trace) == labels


WRITING: dict[str, tuple[Callable[[Any, Tensor], Any], str, str]] = {
    "returns nothing": (then_read(lambda o, y, x: o.add_into(y, x)), "add_into_1:1", "add_1:1"),
    "returns the written": (
        then_read(lambda o, y, x: o.write_and_return(y, x)),
        "write_and_return_1:1",
        "add_1:1",
    ),
    "out": (then_read(lambda o, y, x: o.write_out(x, out=y)), "write_out_1:1", "add_1:1"),
    "returns another": (then_read(lambda o, y, x: o.add_and_triple(y, x)), "add_and_triple_2:1", "add_1:1"),
    "returns another, raw": (
        then_read(lambda o, y, x: o.write_and_make(y, x)),
        "write_and_make_2:1",
        "add_1:1",
    ),
    "by keyword": (then_read(lambda o, y, x: o.add_and_triple(b=x, a=y)), "add_and_triple_2:1", "add_1:1"),
    "a list": (then_read(lambda o, y, x: o.write_list([x * 2, y])), "write_list_3:1", "add_1:1"),
    "two and two": (then_read(lambda o, y, x: o.two_and_two(x * 2, y)), "two_and_two_4:1", "add_1:1"),
}


@pytest.mark.parametrize("name", WRITING)
def test_who_reads_a_written_tensor_has_the_write_as_parent(name: str, operators: Any) -> None:
    program, written, reader = WRITING[name]
    trace = agrees(lambda: lambda x: program(operators, x), floats(2, 3))
    assert parent_labels(trace[reader]) == [written]
    assert trace[written].is_inplace
    assert torch.equal(trace[reader].out, trace[written].out + 1)
    assert torch.equal(trace["mul_1:1"].out, floats(2, 3))


def test_a_write_through_a_view_reaches_the_whole(operators: Any) -> None:
    def program(x: Tensor) -> Any:
        y = x * 1
        return operators.add_and_triple(y[0], x[0]), y + 1

    trace = agrees(lambda: program, floats(2, 3))
    assert parent_labels(trace["add_1:1"]) == ["mul_1:1", "add_and_triple_2:1"]


def test_the_outputs_of_such_a_call_share_its_index(operators: Any) -> None:
    program, _, _ = WRITING["two and two"]
    trace = agrees(lambda: lambda x: program(operators, x), floats(2, 3))
    ops = [op for op in trace.ops if op.type == "two_and_two"]
    assert [op.output_slot for op in ops] == [0, 1, 2, 3]
    assert len({op.call_index for op in ops}) == 1
    assert [op.is_inplace for op in ops] == [False, False, True, True]


def test_a_write_that_the_schema_hides_makes_the_trace_unverified(operators: Any) -> None:
    program = then_read(lambda o, y, x: o.undeclared(y))
    trace = agrees(lambda: lambda x: program(operators, x), floats(2, 3), verified=False, checked=False)
    assert trace.provenance.verification_reason == "unexplained_write"


# ---- torch's own ---------------------------------------------------------------------------------


def normalized(x: Tensor) -> Any:
    mean, variance = torch.zeros(3), torch.ones(3)
    y = F.batch_norm(x, mean, variance, training=True)
    return y, mean + 1, variance * 2


def normalized_by_instance(x: Tensor) -> Any:
    mean, variance = torch.zeros(3), torch.ones(3)
    y = F.instance_norm(x.T[None], mean, variance, use_input_stats=True)
    return y, mean + 1, variance * 2


def noisy(x: Tensor) -> Any:
    noise = torch.zeros_like(x)
    y = torch._C._nn.rrelu_with_noise(x, noise, 0.1, 0.3, True)
    return y, noise + 1


def observed(x: Tensor) -> Any:
    on, low, high, scale = torch.tensor([1]), torch.zeros(1), torch.zeros(1), torch.ones(1)
    zero = torch.zeros(1, dtype=torch.int32)
    y = torch.fused_moving_avg_obs_fake_quant(x, on, on, low, high, scale, zero, 0.1, 0, 255, 0, False, False)
    return y, low + 1, scale * 2


@pytest.mark.parametrize(
    ("program", "edges"),
    [
        (normalized, {"add_1:1": "batch_norm_2:1", "mul_1:1": "batch_norm_3:1"}),
        (normalized_by_instance, {"add_1:1": "instance_norm_2:1", "mul_1:1": "instance_norm_3:1"}),
        (noisy, {"add_1:1": "rrelu_with_noise_2:1"}),
        (
            observed,
            {
                "add_1:1": "fused_moving_avg_obs_fake_quant_2:1",
                "mul_1:1": "fused_moving_avg_obs_fake_quant_4:1",
            },
        ),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_torch_functions_that_write_besides_what_they_return(
    program: Callable[[Tensor], Any], edges: dict[str, str]
) -> None:
    trace = agrees(lambda: program, floats(4, 3))
    for reader, written in edges.items():
        assert parent_labels(trace[reader]) == [written]
        assert trace[reader].args[0].out.equal(trace[written].out)


class Normalized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x) + self.norm.running_mean


def test_what_is_written_into_a_buffer_is_its_version_alone() -> None:
    trace = agrees(Normalized, floats(4, 3), grad=True)
    assert [op.label for op in trace.ops if op.type == "batch_norm"] == ["batch_norm_1:1"]
    mean = trace.buffers["norm.running_mean"]
    assert parent_labels(mean.versions[-1]) == ["batch_norm_1:1"]
    assert mean.versions[-1].label in parent_labels(trace["add_2:1"])
