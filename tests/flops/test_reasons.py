"""What has no count says why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils import flop_counter

from tests.flops.recording import f32, last_call
from torchlens._records import Opaque
from torchlens.flops import Cost, count


class NotKnown(NamedTuple):
    run: Callable[[], object]
    reason: str


NOT_KNOWN = {
    "factorisation": NotKnown(lambda: torch.linalg.svd(f32(3, 3)), "`_linalg_svd`"),
    "solve": NotKnown(lambda: torch.linalg.solve(torch.eye(3), f32(3)), "`_linalg_solve_ex`"),
    # two products are there, but the inverse before them is not known
    "negative_power": NotKnown(lambda: torch.linalg.matrix_power(torch.eye(3), -3), "`linalg_inv_ex`"),
    "fourier": NotKnown(lambda: torch.fft.fft(f32(8)), "`_fft_r2c`"),
    "sort": NotKnown(lambda: torch.sort(f32(8)), "`sort`"),
    "topk": NotKnown(lambda: torch.topk(f32(8), 2), "`topk`"),
    "interpolation": NotKnown(
        lambda: torch._C._nn.upsample_bilinear2d(f32(1, 1, 2, 2), [4, 4], False), "`upsample_bilinear2d`"
    ),
    "distances_without_product": NotKnown(
        lambda: torch._VF.cdist(f32(3, 4), f32(5, 4), 2.0, None), "`_cdist_forward`"
    ),
    "needs_data": NotKnown(lambda: torch.argwhere(f32(3)), "cannot be run without data"),
    "accumulated_by_index": NotKnown(
        lambda: f32(3).index_put_([torch.tensor([0, 0])], torch.tensor(1.0), True), "its indices select"
    ),
    "sparse_product": NotKnown(lambda: torch.mm(torch.eye(3).to_sparse(), f32(3, 3)), "sparse"),
    "sparse_elementwise": NotKnown(lambda: SPARSE * 2, "sparse"),
    "empty_product": NotKnown(lambda: torch.mm(f32(0, 3), f32(3, 5)), "no elements"),
    "empty_contraction": NotKnown(lambda: torch.mm(f32(2, 0), f32(0, 5)), "no elements"),
    "empty_linear": NotKnown(lambda: F.linear(f32(0, 3), f32(5, 3)), "no elements"),
    "empty_convolution": NotKnown(lambda: torch.conv1d(f32(0, 4, 10), f32(6, 4, 3)), "no elements"),
    "empty_elementwise": NotKnown(lambda: torch.relu(f32(0, 3)), "no elements"),
    "empty_reduction": NotKnown(lambda: f32(0, 3).sum(), "no elements"),
}
SPARSE = torch.eye(3).to_sparse()


@pytest.mark.parametrize("case", list(NOT_KNOWN.values()), ids=list(NOT_KNOWN))
def test_anything_else_says_why(case: NotKnown) -> None:
    cost = count(*last_call(case.run))
    assert (cost.flops, cost.macs) == (None, None)
    assert cost.reason is not None
    assert case.reason in cost.reason
    assert cost.reason.endswith(".")


def raises(*_: object) -> None:
    raise RuntimeError("not to be run")


class Callable_:
    def __call__(self, x: Tensor) -> Tensor:
        return x


NO_FUNCTIONS_OF_TORCH: dict[str, object] = {
    "a user's function": raises,
    "a user's callable": Callable_(),
    "a name": "relu",
    "None": None,
    "an initialiser": nn.init.normal_,
    "torch.save": torch.save,
    "all_reduce": torch.distributed.all_reduce,
    "a builtin": len,
    "a number": 7,
}


@pytest.mark.parametrize("func", NO_FUNCTIONS_OF_TORCH.values(), ids=NO_FUNCTIONS_OF_TORCH)
def test_what_is_no_function_of_torch_is_not_run(func: object) -> None:
    cost = count(func, (f32(3),), {}, f32(3))
    assert cost.flops is None
    assert cost.reason is not None
    assert "is no function of torch's" in cost.reason


@pytest.mark.parametrize(
    "func", [torch.einsum, torch.matmul, F.linear, torch.relu, torch.max_pool2d, torch.lstm]
)
@pytest.mark.parametrize(
    "args",
    [(), (None,), ("a", 3), (object(),), ([[]],), (Opaque("Odd", "<Odd>"),), ({"a": {1}},)],
    ids=["none", "None", "scalars", "object", "lists", "opaque", "dict"],
)
def test_impossible_arguments_are_a_reason(func: Any, args: tuple[object, ...]) -> None:
    cost = count(func, args, None, None)
    assert cost.flops is None
    assert cost.reason


def test_argument_that_was_not_kept_is_named() -> None:
    cost = count(torch.einsum, (Opaque("Odd", "<Odd>"), [f32(3)]), {}, f32(3))
    assert cost.reason == "It has an argument of type `Odd`, which a run without data cannot be given."


@pytest.fixture
def library() -> Any:
    with torch.library._scoped_library("flops_test", "FRAGMENT") as library:
        yield library


def test_custom_operator_is_unknown_until_a_formula_is_registered(
    library: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    library.define("triple(Tensor x) -> Tensor")
    library.impl("triple", lambda x: x * 3, "CPU")
    call = last_call(lambda: torch.ops.flops_test.triple(f32(2, 3)))
    cost = count(*call)
    assert cost.flops is None
    assert cost.reason is not None
    assert cost.reason.startswith("`flops_test.triple` is a custom operator")
    monkeypatch.setattr(flop_counter, "flop_registry", dict(flop_counter.flop_registry))
    flop_counter.register_flop_formula(torch.ops.flops_test.triple)(lambda x, out_shape, **_: 10 * x[0])
    assert count(*call) == Cost(20, 10, None)
    assert count(torch.ops.flops_test.triple.default, *call[1:]) == Cost(20, 10, None)


def test_custom_operator_counts_by_its_tag(library: Any) -> None:
    library.define("twice(Tensor x) -> Tensor", tags=(torch.Tag.pointwise,))
    library.impl("twice", lambda x: x * 2, "CPU")
    assert count(*last_call(lambda: torch.ops.flops_test.twice(f32(2, 3)))) == Cost(6, 0, None)
