"""`op.out` and `op.args` against copies taken on the spot by a plain run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

import torchlens as tl
from tests.programs import in_place
from tests.programs.in_place import PROGRAMS, grid
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


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_values_are_those_at_the_op(program: Callable[..., Any]) -> None:
    assert_values(program, grid(3, 4))


@pytest.mark.parametrize("program", [in_place.conjugate_view, in_place.negative_view], ids=["conj", "neg"])
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
        assert_values(in_place.views_of_views, grid(3, 4))


def test_a_value_does_not_change_by_reading_in_another_order() -> None:
    trace = tl.trace(in_place.views_of_views, grid(3, 4))
    backwards = [copied(op.out) for op in reversed(trace.ops)][::-1]
    again = [copied(op.out) for op in trace.ops]
    assert all(map(torch.equal, backwards, again))


def test_writing_into_a_value_that_was_rebuilt_leaves_the_others_alone() -> None:
    trace = tl.trace(in_place.in_place_chain, grid(3, 4))
    expected = copied(trace["add_1"].out)
    trace["add_1"].out.zero_()
    trace["clone_1"].out.zero_()
    assert torch.equal(trace["add_1"].out, expected)


# ---- the write is a resize by `out=`, a storage by `set_`, a part of a complex number ------------


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


def test_a_storage_given_by_set_is_not_seen_and_the_trace_says_so() -> None:
    trace = tl.trace(in_place.given_storage, grid(3, 4))
    assert trace.provenance.verification_reason == "unexplained_write"
    with pytest.raises(OverwrittenError, match="something the capture did not see"):
        _ = trace["clone_1"].out


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
