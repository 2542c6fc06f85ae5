"""`op.out` and `op.args` against copies taken on the spot by a plain run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import torchlens as tl
from tests.programs.reading import lint
from torchlens.errors import OverwrittenError


@dataclass
class Seen:
    """What one call of a plain run read and gave, copied at that moment."""

    name: str
    args: list[Tensor]
    outs: list[Tensor]


class Copying(TorchFunctionMode):
    """Copies the tensor arguments of each torch call before it, and its results right after it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Seen] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        before = [copied(tensor) for tensor in tensors_of([args, kwargs])]
        result = func(*args, **kwargs)
        name = func.__self__.__name__ if func.__name__ in ("__get__", "__set__") else func.__name__
        given = result if result is not None else written(name, args, kwargs)
        outs = [copied(tensor) for tensor in tensors_of(given)]
        if outs:
            self.seen.append(Seen(name, before, outs))
        return result


def written(name: str, args: Any, kwargs: dict[str, Any]) -> Any:
    """The tensors of a call that returns none and writes into its first argument."""
    return args[0] if name in ("__setitem__", "data", "real", "imag") or name.startswith("_f") else None


def tensors_of(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_of(item)
    elif isinstance(value, dict):
        yield from tensors_of(list(value.values()))


def copied(tensor: Tensor) -> Tensor:
    return tensor.detach().resolve_conj().resolve_neg().clone()


def references(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from references(item)
    elif isinstance(value, dict):
        yield from references(list(value.values()))
    elif hasattr(value, "position"):
        yield value


def assert_same(found: Tensor, expected: Tensor, what: str) -> None:
    found = copied(found)
    assert found.shape == expected.shape and found.dtype == expected.dtype, what
    assert torch.equal(found, expected) or torch.allclose(found, expected, 0, 0, equal_nan=True), what


def assert_values(program: Callable[..., Any], *inputs: Any) -> Any:
    """Every output and every argument of every call is what a plain run saw at that call."""
    given, again = clones(inputs), clones(inputs)
    torch.manual_seed(0)
    with Copying() as plain:
        program(*given)
    trace = tl.trace(program, again, capture=tl.options.CaptureOptions(seed=0))
    lint(trace)
    calls: dict[int, list[Any]] = {}
    for op in trace.ops:
        if op.kind == "call":
            calls.setdefault(op.call_index, []).append(op)
    names = [ops[0].label for ops in calls.values()]
    assert len(calls) == len(plain.seen), f"{names} for {[seen.name for seen in plain.seen]}"
    for seen, ops in zip(plain.seen, calls.values(), strict=True):
        what = f"{ops[0].label} ({seen.name})"
        refs = list(references([ops[0].args, ops[0].kwargs]))
        assert len(refs) == len(seen.args), what
        for ref, expected in zip(refs, seen.args, strict=True):
            assert tuple(ref.shape) == tuple(expected.shape), f"shape of argument {ref.position} of {what}"
            assert_same(ref.out, expected, f"argument {ref.position} of {what}")
        for op, expected in zip(ops, seen.outs, strict=True):
            assert tuple(op.shape) == tuple(expected.shape), f"shape of {what}"
            assert_same(op.out, expected, f"value of {what}")
    return trace


def clones(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value.clone() if isinstance(value, Tensor) else value for value in inputs)


def grid(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    values = torch.arange(1, torch.Size(shape).numel() + 1, dtype=torch.float32).reshape(shape)
    return (values * (1 - 2j)).to(dtype) if dtype.is_complex else values.to(dtype)


# ---- programs of single C-level calls --------------------------------------------------------------


def in_place_chain(x: Tensor) -> Tensor:
    return x.clone().add_(1).mul_(2).sub_(3).neg_().clamp_(-4, 4).sqrt_().zero_().fill_(2)


def views_of_views(x: Tensor) -> Tensor:
    y = x.clone()
    row = y[1]
    tail = row[1:]
    tail.mul_(10)
    y.t()[0].add_(100)
    one = tail[::2]
    one.zero_()
    return y + row + 1


def base_after_view(x: Tensor) -> Tensor:
    y = x.clone()
    first = y[0]
    a = y * 1
    first.fill_(7)
    b = y * 1
    y.view(-1)[1::3] = -1
    return a + b + y


def dtype_view(x: Tensor) -> Tensor:
    y = x.clone()
    bits = y.view(torch.int32)
    a = y + 0
    bits[0] = 0
    b = y + 0
    y.view(torch.uint8)[1, 3] = 64
    return a + b + y + bits


def conjugate_view(x: Tensor) -> Tensor:
    y = x * 1
    c = y.conj()
    before = c + 0
    c.mul_(2j)
    after = y + 0
    y[0] = 3 + 1j
    return before + after + c


def negative_view(x: Tensor) -> Tensor:
    y = x * 1
    n = y.conj().imag
    before = n + 0
    n.mul_(2)
    after = y + 0
    y.real.add_(1)
    n[0] = 5
    return before + after.real + n + y.imag


def expanded(x: Tensor) -> Tensor:
    y = x[:, :1].clone()
    wide = y.expand(3, 4)
    a = wide + 0
    y.mul_(2)
    b = wide + 0
    y.add_(wide[:, :1].clone())
    return a + b + wide


def zero_size(x: Tensor) -> Tensor:
    y = x.clone()
    none = y[:0]
    none.add_(1)
    none.zero_()
    y[3:] = 5
    y.add_(1)
    return y + none.sum()


def mask_changed_later(x: Tensor) -> Tensor:
    y = x.clone()
    mask = y > 4
    y[mask] = 0
    mask.logical_not_()
    y[mask] = -1
    y.masked_fill_(mask, 3)
    mask.zero_()
    return y + mask


def index_changed_later(x: Tensor) -> Tensor:
    y = x.clone()
    at = torch.tensor([0, 2])
    y[at] = 50
    at.add_(-1)
    y[:, at] = 60
    y[at.abs_(), at] += 5
    at.fill_(0)
    return y + at.sum()


def index_list(x: Tensor) -> Tensor:
    y = x.clone()
    rows = [0, 2]
    y[rows] = 0
    rows.append(1)
    y[rows, 1] = 5
    y[None, ..., 0] = 2
    y[1, [0, 1]] = 9
    return y + 1


def out_argument(x: Tensor) -> Tensor:
    y = x.clone()
    torch.add(x, 1, out=y)
    values, indices = y.new_zeros(3), torch.zeros(3, dtype=torch.int64)
    torch.max(x, 1, out=(values, indices))
    torch.mul(values, 2, out=values)
    torch.mul(x[0], 0, out=y[1])
    return y.sum() + values + indices


def foreach(x: Tensor) -> Tensor:
    parts = [x[0].clone(), x[1].clone(), x.clone()]
    torch._foreach_add_(parts, 1)
    torch._foreach_mul_(parts, [2, 3, 4])
    torch._foreach_sqrt_(parts)
    torch._foreach_copy_(parts[:2], [parts[2][0], parts[2][1]])
    torch._foreach_zero_(parts)
    return parts[0] + parts[2]


def assigned_data(x: Tensor) -> Tensor:
    y = x.clone()
    a = y + 0
    y.data = x * 5
    b = y + 0
    y.add_(1)
    y.data = x[0] * 2
    return y + a + b


def new_shapes(x: Tensor) -> Tensor:
    y = x.clone()
    y.unsqueeze_(0)
    y.add_(1)
    y.squeeze_(0)
    y.t_()
    y.mul_(2)
    y.transpose_(0, 1)
    y.swapaxes_(0, 1)
    y.swapdims_(1, 0)
    y.as_strided_((2, 2), (1, 4))
    y.zero_()
    return y + 1


def resized(x: Tensor) -> Tensor:
    y = x.clone()
    y.resize_(2, 3)
    y.add_(1)
    y.resize_(3, 2).fill_(3)
    y.resize_as_(x)
    return y + 0


def given_storage(x: Tensor) -> Tensor:
    y, z = x.clone(), x * 2
    y.add_(1)
    y.set_(z)
    y.mul_(3)
    z.add_(1)
    return y + z


def scattered(x: Tensor) -> Tensor:
    y = x.clone()
    at = torch.tensor([[0, 1], [1, 2]])
    y.scatter_(0, at, 50)
    y.scatter_add_(1, at, x)
    y.scatter_reduce_(0, at, x, "amax")
    y.index_put_((at[0], at[1]), x[0, 0])
    y.index_put_((at[0],), x[0], accumulate=True)
    y.put_(at, x[:2, :2])
    y.masked_scatter_(y > 3, x)
    y.masked_fill_(y > 5, 1)
    return y + 0


def indexed(x: Tensor) -> Tensor:
    y = x.clone()
    at = torch.tensor([2, 0])
    y.index_copy_(0, at, x[:2] * 10)
    y.index_fill_(1, at, 3)
    y.index_add_(-1, at, x[:, :2])
    y.index_reduce_(0, at, x[:2], "prod")
    at.zero_()
    return y + 0


def mapped(x: Tensor) -> Tensor:
    y = x.clone()
    y.map_(x, lambda a, b: a * b)
    y.apply_(lambda a: a + 1)
    return y + 0


def numbers_and_diagonals(x: Tensor) -> Tensor:
    y = x.clone()
    y.fill_diagonal_(0)
    y.diagonal().add_(5)
    y.triu_()
    y.copy_(x)
    y.copy_(x[0])
    y.unfold(1, 2, 2)[0] = 1
    y.unbind()[2].mul_(0)
    y.split(2, 1)[1].add_(9)
    y.bernoulli_(0.5)
    y.uniform_().exp_()
    y.addmm_(x, x.t() @ x)
    y.lerp_(x, 0.5)
    return y + 0


def operators(x: Tensor) -> Tensor:
    y = x.clone()
    y += 1
    y -= x
    y *= 3
    y /= 2
    y **= 2
    y //= 1
    y %= 7
    whole = (y * 1).int()
    whole &= 6
    whole |= 1
    whole ^= 3
    whole <<= 2
    whole >>= 1
    return y + whole


def written_input(x: Tensor) -> Tensor:
    y = x[0]
    x.mul_(2)
    z = y + 1
    y.sub_(1)
    return x + z


def source_and_target_overlap(x: Tensor) -> Tensor:
    y = x.clone()
    y[0] = y[1] * 2
    y[:, 0].copy_(y[:, 1])
    y[1:] = y[:-1].clone()
    y.mul_(y)
    return y + 0


def several_outputs(x: Tensor) -> Tensor:
    y = x.clone()
    low, high = y.chunk(2, 1)
    values, indices = torch.sort(y)
    low.detach().zero_()
    high.detach().mul_(-1)
    indices.fill_(1)
    return y + values + indices


def activations(x: Tensor) -> Tensor:
    y = (x - 6).clone()
    y.relu_()
    torch.relu_(y)
    torch.sigmoid_(y)
    torch._C._nn.hardtanh_(y, -1.0, 0.7)
    torch._C._nn.leaky_relu_(y)
    torch.dropout_(y, 0.5, True)
    return y + 0


PROGRAMS = [
    in_place_chain, views_of_views, base_after_view, dtype_view, expanded, zero_size, mask_changed_later,
    index_changed_later, index_list, out_argument, foreach, assigned_data, new_shapes, resized,
    scattered, indexed, mapped, numbers_and_diagonals, operators, written_input, source_and_target_overlap,
    several_outputs, activations,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_values_are_those_at_the_op(program: Callable[..., Any]) -> None:
    assert_values(program, grid(3, 4))


@pytest.mark.parametrize("program", [conjugate_view, negative_view], ids=["conj", "neg"])
def test_values_of_lazy_views_are_those_at_the_op(program: Callable[..., Any]) -> None:
    assert_values(program, grid(4, dtype=torch.complex64))


def slices_and_fills(x: Tensor) -> Tensor:
    y = x.clone()
    part = y[1:, ::2]
    y[0] = 0
    part.fill_(1)
    y[y == 1] = 0
    y.copy_(x)
    y.transpose(0, 1)[2:].zero_()
    return y.flip(0)


@pytest.mark.parametrize(
    "dtype",
    [
        torch.bfloat16,
        torch.float16,
        torch.float64,
        torch.complex64,
        torch.complex128,
        torch.uint8,
        torch.bool,
    ],
    ids=str,
)
def test_values_of_every_dtype_are_those_at_the_op(dtype: torch.dtype) -> None:
    trace = assert_values(slices_and_fills, grid(3, 4, dtype=dtype))
    assert {op.dtype for op in trace.ops if op.type != "eq"} == {dtype}


@pytest.mark.parametrize("shape", [(), (1,), (0,), (0, 3)], ids=str)
def test_values_of_scalars_and_of_nothing_are_those_at_the_op(shape: tuple[int, ...]) -> None:
    def change(x: Tensor) -> Tensor:
        y = x.clone()
        y.add_(1)
        y.unsqueeze_(0).mul_(2)
        y[...] = 5
        return y + 0

    assert_values(change, grid(*shape))


def test_values_in_inference_mode_are_those_at_the_op() -> None:
    with torch.inference_mode():
        assert_values(views_of_views, grid(3, 4))


def test_a_value_does_not_change_by_reading_in_another_order() -> None:
    trace = tl.trace(views_of_views, grid(3, 4))
    backwards = [copied(op.out) for op in reversed(trace.ops)][::-1]
    again = [copied(op.out) for op in trace.ops]
    assert all(map(torch.equal, backwards, again))


def test_writing_into_a_value_that_was_rebuilt_leaves_the_others_alone() -> None:
    trace = tl.trace(in_place_chain, grid(3, 4))
    expected = copied(trace["add_1"].out)
    trace["add_1"].out.zero_()
    trace["clone_1"].out.zero_()
    assert torch.equal(trace["add_1"].out, expected)


# ---- the write is a resize by `out=`, a storage by `set_`, a part of a complex number ----------------


def test_an_empty_out_that_the_call_fills_was_empty_before() -> None:
    def fill(x: Tensor) -> Tensor:
        filled = torch.empty(0)
        torch.add(x, 1, out=filled)
        return filled * 2

    trace = tl.trace(fill, grid(3, 4))
    assert trace["add_1"].shape == (3, 4)
    assert trace["empty_1"].shape == (0,)
    assert trace["empty_1"].out.shape == (0,)
    assert trace["add_1"].kwargs["out"].shape == (0,)


@pytest.mark.parametrize("part", ["real", "imag"])
def test_assigning_a_part_of_a_complex_tensor_loses_the_older_value(part: str) -> None:
    def assign(x: Tensor) -> Tensor:
        y = x * 1
        setattr(y, part, torch.zeros(4))  # torch tells no mode of it
        return y + 1

    trace = tl.trace(assign, grid(4, dtype=torch.complex64))
    with pytest.raises(
        OverwrittenError, match="mul_1:1 was changed in place by something the capture did not see"
    ):
        trace["mul_1"].out


@pytest.mark.xfail(strict=True, reason="a metadata write moves the version of every view")
def test_a_change_of_shape_leaves_views_of_the_same_elements_readable() -> None:
    def turn(x: Tensor) -> Tensor:
        y = x.clone()
        row = y[1]
        y.t_()
        return row + 1

    x = grid(3, 4)
    trace = tl.trace(turn, x)
    assert torch.equal(trace["getitem_1"].out, x[1])
    assert torch.equal(trace["add_1"].args[0].out, x[1])


def ancestors(op: Any) -> set[Any]:
    found: set[Any] = set()
    todo = [op]
    while todo:
        for parent in todo.pop().parents:
            if parent not in found:
                found.add(parent)
                todo.append(parent)
    return found


@pytest.mark.xfail(strict=True, reason="after set_ the writes on the new storage are not counted")
def test_a_storage_given_by_set_is_another_tensors() -> None:
    trace = assert_values(given_storage, grid(3, 4))
    assert "mul_1:1" in {op.label for op in ancestors(trace["set_1"])}


@pytest.mark.xfail(strict=True, reason="a numpy index is not copied")
def test_a_numpy_index_may_change_after_the_write() -> None:
    numpy = pytest.importorskip("numpy")
    at = numpy.array([0, 2])

    def change(x: Tensor) -> Tensor:
        y = x.clone()
        y[at] = 0
        at[:] = 1
        return y

    x = grid(3, 4)
    trace = tl.trace(change, x)
    assert torch.equal(trace["clone_1"].out, x)


# ---- what can't be had raises ------------------------------------------------------------------------


class Unreadable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.linear(x), *torch.max(x, 1), *x.split(2, 1)


def change(tensor: Tensor) -> None:
    tensor.detach().add_(1)


@pytest.mark.parametrize(
    ("label", "pick"),
    [
        ("linear_1:1", lambda t: t.output[0]),
        ("max_1:1", lambda t: t.output[1]),
        ("max_2:1", lambda t: t.output[2]),
        ("split_1:1", lambda t: t.output[3]),
        ("split_2:1", lambda t: t.output[3]),
        ("input_1:1", lambda t: t.inputs[0].out),
        ("output_1:1", lambda t: t.output[0]),
    ],
)
def test_a_value_changed_after_the_capture_raises(label: str, pick: Callable[[Any], Tensor]) -> None:
    trace = tl.trace(Unreadable(), grid(3, 4))
    trace[label].out
    change(pick(trace))
    with pytest.raises(
        OverwrittenError, match=f"{label}.* changed in place by something the capture did not see"
    ):
        trace[label].out
    assert not hasattr(trace[label], "out")


def test_arguments_changed_after_the_capture_raise() -> None:
    model, x = Unreadable(), grid(3, 4)
    trace = tl.trace(model, x)
    args = trace["linear_1"].args
    with torch.no_grad():
        model.linear.weight.zero_()
        x.add_(1)
    for position in (0, 1):
        with pytest.raises(OverwrittenError, match="changed in place"):
            args[position].out
    assert torch.equal(args[2].out, model.linear.bias)


@pytest.mark.xfail(strict=True, reason="requires_grad of a changed value raises")
def test_shapes_and_pictures_of_a_changed_value_stay_readable() -> None:
    x = grid(3, 4)
    trace = tl.trace(Unreadable(), x)
    change(x)
    op = trace.inputs[0]
    assert (op.shape, op.dtype, op.nbytes, op.requires_grad) == ((3, 4), torch.float32, 48, False)
    assert "input_1" in str(trace) and "input_1" in repr(op)


def test_a_freed_storage_raises() -> None:
    def free(x: Tensor) -> Tensor:
        y = x * 2
        z = y + 1
        y.untyped_storage().resize_(0)
        return z

    trace = tl.trace(free, grid(3, 4))
    with pytest.raises(OverwrittenError, match="mul_1:1 was resized to 0 bytes, 48 are needed"):
        trace["mul_1"].out
    assert torch.equal(trace["add_1"].out, grid(3, 4) * 2 + 1)


def test_a_storage_freed_after_a_write_raises() -> None:
    trace = tl.trace(in_place_chain, grid(3, 4))
    trace.output.untyped_storage().resize_(0)
    with pytest.raises(OverwrittenError, match="resized to 0 bytes"):
        trace["clone_1"].out


def test_an_older_parameter_raises_and_a_newer_one_reads() -> None:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with tl.capture(model) as trace:
        model(grid(3, 4)).sum().backward()
        optimizer.step()
        after = model(grid(3, 4)).detach().clone()
    first, second = (
        trace["linear_1"].ops[0],
        trace["linear_1"].ops[1] if trace["linear_1"].num_passes > 1 else trace["linear_2"].ops[0],
    )
    with pytest.raises(OverwrittenError, match="parameters are referenced, never copied"):
        first.args[1].out
    assert torch.equal(second.args[1].out, model.weight)
    assert torch.equal(second.out, after)
    assert trace.copied_bytes == 0
