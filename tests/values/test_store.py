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
    with Copying() as plain:
        program(*clones(inputs))
    trace = tl.trace(program, clones(inputs))
    lint(trace)
    calls: dict[int, list[Any]] = {}
    for op in trace.ops:
        if op.kind == "call":
            calls.setdefault(op.call_index, []).append(op)
    assert [ops[0].operation.strip("_") for ops in calls.values()] == [
        operation(seen.name, ops[0]) for seen, ops in zip(plain.seen, calls.values(), strict=True)
    ]
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


def operation(name: str, op: Any) -> str:
    """The oracle knows torch's name only; the library may know a better one for the same call."""
    return op.operation.strip("_") if name.strip("_") in op.operation or name.startswith("__") else name.strip("_")


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
    y.add_(wide[:, :1])
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
    values, indices = y.new_empty(3), torch.empty(3, dtype=torch.int64)
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
    y.resize_(4, 4).fill_(3)
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
    y.copy_(y[0])
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
    index_changed_later, index_list, out_argument, foreach, assigned_data, new_shapes, resized, given_storage,
    scattered, indexed, mapped, numbers_and_diagonals, operators, written_input, source_and_target_overlap,
    several_outputs, activations,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_values_are_those_at_the_op(program: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    seed = tl.options.CaptureOptions(seed=0)
    del seed
    assert_values(program, grid(3, 4))
