"""Recorded calls made again: inputs through the edges, settings and random state as they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchlens as tl
from tests.programs.last_writers import equal_bits
from tests.programs.reading import floats
from torchlens._replay.rerun import CannotReplayError, Replay


def replay_of(trace: tl.Trace, label: str, edited: dict[str, Tensor] | None = None) -> Tensor:
    """What the call behind an op gives when it is made again, with other values for some ops."""
    reader = trace._reader
    op = reader.op_index[label]
    values = {reader.op_index[name]: value for name, value in (edited or {}).items()}
    return Replay(reader).run(reader.numbers.rows[op], values).outs[reader.numbers.slots[op]]


def test_an_edited_parent_reaches_the_call_through_its_edge() -> None:
    trace = tl.trace(lambda x: torch.sub(x.sin(), x.cos()), (floats(3),))
    found = replay_of(trace, "sub_1", {"cos_1": torch.zeros(3)})
    assert equal_bits(found, trace["sin_1"].out)
    assert equal_bits(replay_of(trace, "sub_1"), trace["sub_1"].out)


def written_through_views(x: Tensor) -> Tensor:
    y = x.clone()
    y[0].add_(10)
    y[:, 1].mul_(2)
    return y + 0


def test_an_argument_is_laid_together_from_all_that_wrote_it() -> None:
    trace = tl.trace(written_through_views, (torch.ones(2, 3),))
    assert replay_of(trace, "add_2").tolist() == [[11, 22, 11], [1, 2, 1]]
    edited = {"add_1": torch.zeros(3)}  # its second element is multiplied later
    assert replay_of(trace, "add_2", edited).tolist() == [[0, 22, 0], [1, 2, 1]]
    edited = {"clone_1": torch.full((2, 3), 5.0), "mul_1": torch.zeros(2)}
    assert replay_of(trace, "add_2", edited).tolist() == [[11, 0, 11], [5, 0, 5]]


def test_what_no_edge_accounts_for_is_nan() -> None:
    trace = tl.trace(written_through_views, (torch.ones(2, 3),))
    reader = trace._reader
    op = reader.op_index["add_2"]
    last = max(parent for _, parent in reader.lineage.parents[op])
    reader.lineage.parents[op] = (("0", last),)
    found = replay_of(trace, "add_2")
    assert found.isnan().tolist() == [[True, False, True], [True, False, True]]


def shifts(x: Tensor) -> Tensor:
    y = x.clone()
    y[1:].copy_(y[:-1].clone())
    y[0].copy_(y[2])
    torch.add(y[0], y[1], out=y[2])
    torch._foreach_mul_([y[0], y[1]], 2.0)
    return y + 0


def test_arguments_that_share_memory_share_it_again() -> None:
    trace = tl.trace(shifts, (floats(3, 4),))
    for op in trace.ops[1:-1]:
        assert equal_bits(replay_of(trace, op.label), op.out), op.label


def expanded(x: Tensor) -> Tensor:
    y = x.clone()
    wide = y.expand(2, 2, 4)
    windows = y.as_strided((2, 3), (1, 1))
    y[0].add_(1)
    return wide.sum() + windows.sum() + wide


def test_elements_that_stand_at_several_places() -> None:
    trace = tl.trace(expanded, (floats(2, 4),))
    for label in ("sum_1", "sum_2", "add_3"):
        assert equal_bits(replay_of(trace, label), trace[label].out), label


def beyond_its_argument(x: Tensor) -> Tensor:
    y = x.clone()
    row = y[0]
    y[1].fill_(7)
    wide = row.as_strided((2, 4), (4, 1))
    y.zero_()
    return wide + y


def test_a_view_that_reaches_beyond_its_argument() -> None:
    trace = tl.trace(beyond_its_argument, (torch.ones(2, 4),))
    assert replay_of(trace, "as_strided_1").tolist() == [[1] * 4, [7] * 4]


def test_making_calls_again_leaves_values_counters_and_gradients_alone() -> None:
    weight = nn.Parameter(torch.ones(3))
    trace = tl.trace(lambda x: (x * weight).relu_().t_().unsqueeze_(0), (floats(2, 3),))
    before = [(op.out.clone(), op.out._version, op.out.requires_grad) for op in trace.ops if op.shape]
    for op in trace.ops:
        if op.kind == "call":
            replay_of(trace, op.label)
    after = [(op.out, op.out._version, op.out.requires_grad) for op in trace.ops if op.shape]
    assert all(equal_bits(one[0], other[0]) and one[1:] == other[1:] for one, other in zip(before, after))
    assert weight.grad is None
    assert weight._version == 0


def with_own_generator(x: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.randn(3, generator=generator) + torch.randn(3, generator=generator) + x


def test_a_random_call_draws_what_it_drew_and_draws_nothing_from_now() -> None:
    for program in (lambda x: F.dropout(x, 0.5) + torch.rand(8), with_own_generator):
        trace = tl.trace(program, (torch.ones(8 if program is not with_own_generator else 3),))
        before = torch.get_rng_state()
        for op in reversed(trace.ops[1:-1]):
            assert equal_bits(replay_of(trace, op.label), op.out), op.label
        assert torch.equal(torch.get_rng_state(), before)


def autocast(x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ x.T


def not_differentiable(x: Tensor) -> Tensor:
    with torch.no_grad():
        return x * 2


def inference(x: Tensor) -> Tensor:
    with torch.inference_mode():
        return (x * 2).add_(1)


def wide_by_default(x: Tensor) -> Tensor:
    torch.set_default_dtype(torch.float64)
    try:
        return torch.ones(3)
    finally:
        torch.set_default_dtype(torch.float32)


def elsewhere_by_default(x: Tensor) -> Tensor:
    with torch.device("meta"):
        return torch.ones(3)


@pytest.mark.parametrize(
    ("program", "label"),
    [
        (autocast, "matmul_1"),
        (not_differentiable, "mul_1"),
        (inference, "add_1"),
        (wide_by_default, "ones_1"),
        (elsewhere_by_default, "ones_1"),
    ],
)
def test_settings_are_those_of_the_call(program: Callable[[Tensor], Tensor], label: str) -> None:
    trace = tl.trace(program, (torch.eye(3, requires_grad=True),))
    found, recorded = replay_of(trace, label), trace[label].out
    assert (found.dtype, found.device, found.requires_grad, found.is_inference()) == (
        recorded.dtype,
        recorded.device,
        recorded.requires_grad,
        recorded.is_inference(),
    )
    with torch.autocast("cpu"), torch.inference_mode():
        assert replay_of(trace, label).dtype == recorded.dtype


def compares(x: Tensor) -> Tensor:
    return x.map_(x.clone(), lambda one, other: one + other)


def reads_a_gradient(x: Tensor) -> Any:
    x = x.detach().requires_grad_()
    x.grad = torch.ones(3)
    return x.grad * 2


@pytest.mark.parametrize(
    ("program", "label", "reason"),
    [
        (compares, "map_1", "an object that a trace does not hold"),
        (torch.func.vmap(torch.sin), "vmap_1", "vmap is a whole transform"),
        (lambda x: torch.empty(2) * 0 + x[0], "empty_1", "memory that nothing has written yet"),
        (lambda x: x.new(2, 3), "new_1", "memory that nothing has written yet"),
        (reads_a_gradient, "grad_1", "'grad' is not computed from the tensor"),
        (torch.sin, "input_1", "an op of kind 'input' was computed from nothing"),
    ],
)
def test_what_cannot_be_made_again_says_why(program: Any, label: str, reason: str) -> None:
    trace = tl.trace(program, (floats(3),))
    with pytest.raises(CannotReplayError, match=reason):
        replay_of(trace, label)
