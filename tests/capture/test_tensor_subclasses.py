"""Tensors of other classes: those that take part in torch functions, and those that wrap other tensors."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map

import torchlens as tl
from tests.programs.agreement import agrees, assert_same_bits
from tests.programs.reading import floats, op_labels, parent_labels
from torchlens.errors import OverwrittenError


class Calling(Tensor):
    """Counts the functions that it is given."""

    calls = 0

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        Calling.calls += 1
        return super().__torch_function__(func, types, args, kwargs or {})


class Made(Tensor):
    @staticmethod
    def __new__(cls, data: Tensor) -> Made:
        return Tensor._make_subclass(cls, data)


@pytest.mark.parametrize("kind", [Calling, Made])
def test_a_subclass_of_its_own(kind: type[Tensor]) -> None:
    def program(x: Tensor) -> Tensor:
        y = (x * 2).sin() + F.softmax(x, -1)
        return F.layer_norm(y, (3,))

    x = Made(floats(2, 3)) if kind is Made else floats(2, 3).as_subclass(kind)
    trace = agrees(lambda: program, x)
    assert type(trace.output) is kind
    assert op_labels(trace) == "mul_1:1 sin_1:1 softmax_1:1 add_1:1 layer_norm_1:1"


def test_a_subclass_sees_the_calls_that_it_sees_without_a_capture() -> None:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        y.add_(1)
        return F.relu(y, inplace=True).T

    counts: list[int] = []
    for run in (program, lambda x: tl.trace(program, x)):
        Calling.calls = 0
        run(floats(2, 3).as_subclass(Calling))
        counts.append(Calling.calls)
    assert counts[0] == counts[1]


def test_values_of_a_subclass_before_a_write() -> None:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        y.add_(1)
        y[0].mul_(3)
        return y * 1

    trace = agrees(lambda: program, floats(2, 3).as_subclass(Calling), checked=False)
    assert_same_bits(trace["mul_1:1"].out.as_subclass(Tensor), floats(2, 3) * 2)
    assert parent_labels(trace["mul_3:1"]) == ["add_1:1", "mul_2:1"]


class Wrapping(Tensor):
    """Holds its elements in another tensor."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> Wrapping:
        return Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

    def __init__(self, inner: Tensor) -> None:
        self.inner = inner

    def __repr__(self, **_: Any) -> str:
        return f"Wrapping({self.inner})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def unwrapped(value: Any) -> Any:
            return value.inner if isinstance(value, Wrapping) else value

        def wrapped(value: Any) -> Any:
            return Wrapping(value) if type(value) is Tensor else value

        out = func(*tree_map(unwrapped, args), **tree_map(unwrapped, kwargs or {}))
        return args[0] if func._schema.name.endswith("_") else tree_map(wrapped, out)


def test_a_wrapper_as_input() -> None:
    trace = tl.trace(lambda x: (x * 2).sin() + 1, Wrapping(floats(2, 3)))
    assert op_labels(trace) == "mul_1:1 sin_1:1 add_1:1"
    assert_same_bits(trace.output.inner, (floats(2, 3) * 2).sin() + 1)
    assert trace.provenance.verified
    assert str(trace["sin_1:1"]) and str(trace.summary())


def test_a_write_into_a_wrapper_reaches_what_it_wraps() -> None:
    def program(x: Tensor) -> Tensor:
        inner = x * 1
        outer = Wrapping(inner)
        outer.add_(1)
        return inner * 2

    trace = tl.trace(program, floats(2, 3))
    assert_same_bits(trace.output, (floats(2, 3) + 1) * 2)
    assert_same_bits(trace["mul_1:1"].out, floats(2, 3))
    assert parent_labels(trace["mul_2:1"]) == ["add_1:1"]
    source = next(op for op in trace.ops if op.kind == "source")
    with pytest.raises(OverwrittenError, match="only Wrapping itself knows"):
        _ = source.out


class Duck:
    """No tensor at all, but takes part in torch functions."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        plain = [arg.tensor if isinstance(arg, Duck) else arg for arg in args]
        return Duck(func(*plain, **(kwargs or {})))


class Tensors(MutableMapping[str, Tensor]):
    """A dict of tensors that is stacked key by key."""

    def __init__(self, **held: Tensor) -> None:
        self.held = held

    def __getitem__(self, key: str) -> Tensor:
        return self.held[key]

    def __setitem__(self, key: str, value: Tensor) -> None:
        self.held[key] = value

    def __delitem__(self, key: str) -> None:
        del self.held[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.held)

    def __len__(self) -> int:
        return len(self.held)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func is torch.stack
        return cls(**{key: torch.stack([each[key] for each in args[0]]) for key in args[0][0]})


def test_objects_that_take_part_in_torch_functions_compute_what_they_compute_without() -> None:
    """Torch hands the mode a call that returns no tensor: what the object computes is not seen."""

    def stacked(x: Tensor) -> Tensor:
        return torch.stack([Tensors(a=x * 1, b=x), Tensors(a=x, b=x)])["a"] + 1

    for program in (lambda x: torch.add(torch.sin(Duck(x * 1)), 1).tensor + 1, stacked):
        trace = agrees(lambda program=program: program, floats(3), verified=False)
        assert trace.provenance.verification_reason == "unknown_origin"


def test_fake_tensors_made_in_the_model() -> None:
    def program(x: Tensor) -> Tensor:
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            y = mode.from_tensor(x)
            z = y @ y.T
            z.add_(1)
        return z.shape[0] * x

    trace = agrees(lambda: program, floats(4, 3), checked=False)
    assert parent_labels(trace["rmul_1:1"]) == ["input_1:1"]
    with pytest.raises(OverwrittenError, match="only FakeTensor itself knows"):
        _ = trace["matmul_1:1"].out
