"""Values that can't be read raise, and say why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from torchlens.errors import OverwrittenError


def grid(*shape: int) -> Tensor:
    return torch.arange(1.0, torch.Size(shape).numel() + 1).reshape(shape)


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
    trace = tl.trace(lambda x: x.clone().add_(1).mul_(2), grid(3, 4))
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
