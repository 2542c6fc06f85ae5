"""Functions with a backward of their own, and checkpoints: what their forward calls is seen."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)

from tests.programs.agreement import agrees
from tests.programs.reading import floats, op_labels
from torchlens.errors import OverwrittenError


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        a, b = ctx.saved_tensors
        return g * b, g * a


class Apart(torch.autograd.Function):
    """Context set up apart, outputs that are no tensors, a rule for vmap."""

    @staticmethod
    def forward(a: Tensor, b: Tensor) -> tuple[Tensor, int, Tensor]:
        return a * b, 5, a.sum()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: None, h: Tensor) -> tuple[Tensor, Tensor]:
        a, b = ctx.saved_tensors
        return g * b + h, g * a

    @staticmethod
    def vmap(info: Any, in_dims: Any, a: Tensor, b: Tensor) -> Any:
        return (a * b, 5, a.sum()), (in_dims[0], None, None)


class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        return a

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * 2


class Flat(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        ctx.shape = a.shape
        return a.view(-1)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g.view(ctx.shape)


class Mixed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Any:
        index = a.argmax()
        ctx.mark_non_differentiable(index)
        return a * 2, None, "text", index

    @staticmethod
    def backward(ctx: Any, g: Tensor, *_: Any) -> Tensor:
        return g * 2


class TakesGradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        with torch.enable_grad():
            y = a.detach().requires_grad_()
            z = (y**2).sum()
            (g,) = torch.autograd.grad(z, y)
        ctx.save_for_backward(g)
        return z.detach()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return ctx.saved_tensors[0] * g


def apart(x: Tensor) -> Tensor:
    product, count, total = Apart.apply(x, x * 2)
    return product * count + total


FUNCTIONS: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "product": (lambda x: Product.apply(x, x * 2) + 1, "mul_1:1 mul_2:1 add_1:1"),
    "setup_context": (apart, "mul_1:1 mul_2:1 sum_1:1 mul_3:1 add_1:1"),
    "view": (lambda x: Flat.apply(x * 1) + 1, "mul_1:1 view_1:1 add_1:1"),
    "mixed": (lambda x: Mixed.apply(x * 1)[0] + 1, "mul_1:1 argmax_1:1 mul_2:1 add_1:1"),
    "gradients": (
        lambda x: TakesGradients.apply(x * 1) + 1,
        "mul_1:1 detach_1:1 requires_grad_1:1 pow_1:1 sum_1:1 grad_1:1 detach_2:1 add_1:1",
    ),
    "vmap": (lambda x: torch.func.vmap(lambda r: Apart.apply(r, r)[0])(x) + 1, "vmap_1:1 add_1:1"),
    "grad": (
        lambda x: torch.func.grad(lambda r: Apart.apply(r, r)[0].sum())(x) + 1,
        "grad_1:1 add_1:1",
    ),
}


@pytest.mark.parametrize("with_gradients", [False, True], ids=["no grad", "grad"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_forward_of_a_function_is_seen(name: str, with_gradients: bool) -> None:
    program, labels = FUNCTIONS[name]
    trace = agrees(lambda: program, floats(4, 3), grad=with_gradients)
    assert op_labels(trace) == labels


@pytest.mark.parametrize("with_gradients", [False, True], ids=["no grad", "grad"])
def test_a_function_that_hands_its_input_on(with_gradients: bool) -> None:
    trace = agrees(lambda: lambda x: Same.apply(x * 1) + 1, floats(3), grad=with_gradients)
    made = trace["add_1:1"].parents
    assert [op.label for op in made] in (["view_as_1:1"], ["mul_1:1"])


class Doubles(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        a.mul_(2)
        ctx.mark_dirty(a)
        return a

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * 2


def test_a_tensor_marked_dirty_has_right_edges_and_lost_older_values() -> None:
    def program(x: Tensor) -> Tensor:
        y = x * 1
        return Doubles.apply(y) + 1

    trace = agrees(lambda: program, floats(3), grad=True, verified=False, checked=False)
    assert trace.provenance.verification_reason == "unexplained_write"  # torch counts the marking as a write
    assert [op.label for op in trace["add_1:1"].parents] == ["mul_2:1"]
    with pytest.raises(OverwrittenError, match="did not see"):
        _ = trace["mul_1:1"].out


# ---- checkpoints ---------------------------------------------------------------------------------


def block() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.ReLU())


class Checkpointed(nn.Module):
    def __init__(self, run: Callable[[nn.Sequential, Tensor], Tensor]) -> None:
        super().__init__()
        self.block = nn.Sequential(*block(), *block())
        self.run = run

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self.block, x * 1) + 1


def keep_products(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    is_product = op is torch.ops.aten.addmm.default
    return CheckpointPolicy.MUST_SAVE if is_product else CheckpointPolicy.PREFER_RECOMPUTE


CHECKPOINTS: dict[str, Callable[[nn.Sequential, Tensor], Tensor]] = {
    "reentrant": lambda part, x: checkpoint(part, x, use_reentrant=True),
    "not reentrant": lambda part, x: checkpoint(part, x, use_reentrant=False),
    "sequential": lambda part, x: checkpoint_sequential(part, 2, x, use_reentrant=False),
    "selective": lambda part, x: checkpoint(
        part,
        x,
        use_reentrant=False,
        context_fn=partial(create_selective_checkpoint_contexts, keep_products),
    ),
}


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("with_gradients", [False, True], ids=["no grad", "grad"])
@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_a_checkpoint_is_seen_through_and_recomputed_unseen(kind: str, with_gradients: bool) -> None:
    trace = agrees(lambda: Checkpointed(CHECKPOINTS[kind]), floats(4, 3), grad=with_gradients)
    inner = "linear_{0}:1 dropout_{0}:1 relu_{0}:1"
    assert op_labels(trace) == f"mul_1:1 {inner.format(1)} {inner.format(2)} add_1:1"
