"""Every call that changes an argument announces it, and no other does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import torchlens as tl
from torchlens._capture.writes import out_targets, writes_of


def tensors_of(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_of(item)
    elif isinstance(value, dict):
        yield from tensors_of(list(value.values()))


def bits(tensor: Tensor) -> bytes:
    return tensor.detach().resolve_conj().resolve_neg().clone().untyped_storage().tolist().__repr__().encode()


def geometry(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.untyped_storage()._cdata


class Watching(TorchFunctionMode):
    """Compares what each call written in C changes in its arguments with what it is known to write."""

    def __init__(self) -> None:
        super().__init__()
        self.changed: set[str] = set()
        self.missed: list[str] = []
        self.invented: list[str] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", type(func).__name__).partition(".")[0]
        if name == "__get__" or hasattr(
            func, "__code__"
        ):  # what torch wrote in Python is seen from inside only
            return func(*args, **kwargs)
        given = list({id(t): t for t in tensors_of([args, kwargs])}.values())
        before = [(bits(t), t._version, geometry(t)) for t in given]
        writes = writes_of(func, name)
        targets = writes(args, kwargs) if writes else []
        if kwargs.get("out") is not None:
            targets = out_targets(kwargs["out"])
        announced = {t.untyped_storage()._cdata for t in (target.tensor for target in targets)}
        data = {id(target.tensor) for target in targets if not target.metadata}
        result = func(*args, **kwargs)
        for at, (tensor, (old, version, shape)) in enumerate(zip(given, before)):
            moved, reshaped = bits(tensor) != old, geometry(tensor) != shape
            if moved or reshaped or tensor._version != version:
                self.changed.add(name)
                if shape[-1] not in announced:
                    self.missed.append(f"{name}: argument {at}")
            elif id(tensor) in data:
                self.invented.append(f"{name}: argument {at}")
        return result


def watched(call: Callable[[], Any]) -> Watching:
    with Watching() as mode:
        call()
    return mode


X = torch.arange(1.0, 13).reshape(3, 4) / 7
AT = torch.tensor([[0, 1], [1, 2]])
ROW = torch.tensor([2, 0])


def x() -> Tensor:
    return X.clone()


# ---- the in-place methods, all of them -----------------------------------------------------------

GIVEN: dict[str, tuple[Any, ...]] = {
    "addbmm_": (torch.ones(2, 3, 2), torch.ones(2, 2, 4)),
    "addcdiv_": (X, X),
    "addcmul_": (X, X),
    "addmm_": (torch.ones(3, 2), torch.ones(2, 4)),
    "addr_": (torch.ones(3), torch.ones(4)),
    "apply_": (lambda a: a + 1,),
    "as_strided_": ((2, 2), (1, 2)),
    "bernoulli_": (0.5,),
    "clamp_": (0.4, 1.0),
    "clamp_max_": (0.5,),
    "clamp_min_": (0.5,),
    "clip_": (0.4, 1.0),
    "cauchy_": (), "exponential_": (), "normal_": (), "random_": (), "uniform_": (), "log_normal_": (),
    "copy_": (X * 2,),
    "cumprod_": (0,), "cumsum_": (0,),
    "fill_": (7,),
    "fill_diagonal_": (7,),
    "geometric_": (0.5,),
    "index_add_": (0, ROW, torch.ones(2, 4)),
    "index_copy_": (0, ROW, torch.ones(2, 4)),
    "index_fill_": (0, ROW, 9),
    "index_put_": ((ROW,), torch.tensor(9.0)),
    "index_reduce_": (0, ROW, torch.full((2, 4), 3.0), "prod"),
    "lerp_": (torch.zeros(3, 4), 0.5),
    "map_": (X, lambda a, b: a + b + 1),
    "map2_": (X, X, lambda a, b, c: a + b + c),
    "masked_fill_": (X > 0.5, 9),
    "masked_scatter_": (X > 0.5, torch.zeros(12)),
    "polygamma_": (1,),
    "put_": (AT, torch.zeros(2, 2)),
    "renorm_": (2, 0, 0.5),
    "resize_": (2, 3),
    "resize_as_": (torch.ones(2, 2),),
    "scatter_": (0, AT, 9),
    "scatter_add_": (0, AT, torch.ones(2, 2)),
    "scatter_reduce_": (0, AT, torch.full((2, 2), 9.0), "amax"),
    "set_": (torch.ones(2),),
    "sub_": (X * 2,), "subtract_": (X * 2,),
    "squeeze_": (), "t_": (), "transpose_": (0, 1), "swapaxes_": (0, 1), "swapdims_": (0, 1),
    "unsqueeze_": (0,),
    "sinc_": (), "tril_": (), "triu_": (),
    "mvlgamma_": (1,),
    "logit_": (0.1,),
    "bitwise_not_": (),
}  # fmt: skip
"""Arguments for in-place methods that change a tensor of floats with them."""

NUMBER = """
    atan2_ add_ div_ divide_ eq_ floor_divide_ fmod_ ge_ greater_ greater_equal_ gt_ hypot_ igamma_
    igammac_ le_ less_ less_equal_ lt_ mul_ multiply_ ne_ not_equal_ nextafter_ pow_ remainder_
    true_divide_ float_power_ xlogy_ ldexp_ copysign_ arctan2_ heaviside_
""".split()
INTEGERS = """
    bitwise_and_ bitwise_or_ bitwise_xor_ bitwise_left_shift_ bitwise_right_shift_ gcd_ lcm_
    logical_and_ logical_or_ logical_xor_ __iand__ __ior__ __ixor__ __ilshift__ __irshift__
""".split()
NO_DATA = "requires_grad_ detach_ retain_grad_ share_memory_ rename_ _coalesced_".split()
NEED_MORE = """
    sparse_resize_ sparse_resize_and_clear_ resize_as_sparse_ float_power_ baddbmm_ addmv_ squeeze_
    positive_
""".split()


def in_place_methods() -> list[str]:
    return sorted(name for name in dir(Tensor) if name.endswith("_") and not name.startswith("_"))


def arguments(name: str) -> tuple[Tensor, tuple[Any, ...]]:
    if name in GIVEN:
        starts = {"mvlgamma_": torch.full((3, 4), 3.0), "bitwise_not_": ROW.clone()}
        return starts.get(name, x()), GIVEN[name]
    if name in NUMBER:
        return x(), (torch.full((3, 4), 2.5),)
    if name in INTEGERS:
        return torch.arange(12).reshape(3, 4), (torch.full((3, 4), 3),)
    return x(), ()


ANNOUNCED = [name for name in in_place_methods() if name not in NO_DATA]


@pytest.mark.parametrize("name", ANNOUNCED)
def test_an_in_place_method_is_known_to_write(name: str) -> None:
    assert writes_of(getattr(Tensor, name), name) is not None


@pytest.mark.parametrize("name", [n for n in ANNOUNCED if n not in NEED_MORE] + list(INTEGERS[-5:]))
def test_an_in_place_method_announces_its_write(name: str) -> None:
    tensor, args = arguments(name)
    try:
        mode = watched(lambda: getattr(tensor, name)(*args))
    except (RuntimeError, TypeError, NotImplementedError) as error:
        pytest.fail(f"the table has no arguments for {name}: {error}")
    assert mode.missed == []


@pytest.mark.parametrize("name", ["requires_grad_", "detach_"])
def test_what_changes_no_element_announces_a_change_of_metadata(name: str) -> None:
    mode = watched(lambda: getattr(x(), name)())
    assert mode.invented == [] and mode.missed == [] and mode.changed == set()
    writes = writes_of(getattr(Tensor, name), name)
    assert writes is not None
    (target,) = writes((tensor := x(),), {})
    assert target.tensor is tensor and target.metadata and target.index is None


# ---- functions -----------------------------------------------------------------------------------


def statistics() -> tuple[Tensor, Tensor]:
    return torch.zeros(4), torch.ones(4)


def norm() -> tuple[Any, ...]:
    return X, None, None, *statistics(), True, 0.1, 1e-5


FUSED = ("_fused_sgd_", "_fused_adam_", "_fused_adamw_", "_fused_adagrad_")


def lists(*values: float) -> list[list[Tensor]]:
    return [[torch.full((3,), float(value))] for value in values]


def amp() -> Any:
    gradients, found, scale = [torch.full((3,), float("inf"))], torch.zeros(1), torch.full((1,), 0.5)
    torch._amp_foreach_non_finite_check_and_unscale_(gradients, found, scale)
    return torch._amp_update_scale_(scale, torch.ones(1, dtype=torch.int32), found, 2.0, 0.5, 1)


def fused(name: str, grad_scale: Tensor | None = None) -> Any:
    params, grads, first, second, third = lists(1, 1, 0.5, 0.5, 0.25)
    steps = [torch.tensor(1.0)]
    rates = {"lr": 0.1, "weight_decay": 0.0, "maximize": False, "grad_scale": grad_scale}
    if name == "_fused_sgd_":
        moments = {"momentum": 0.9, "dampening": 0.0, "nesterov": False, "is_first_step": False}
        return torch._fused_sgd_(params, grads, first, **rates, **moments)
    if name == "_fused_adagrad_":
        return torch._fused_adagrad_(params, grads, first, steps, lr_decay=0.0, eps=1e-8, **rates)
    betas = {"beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "amsgrad": True}
    return getattr(torch, name)(params, grads, first, second, third, steps, **rates, **betas)


def quantization_observer() -> Any:
    one = lambda value, dtype=torch.float32: torch.tensor([value], dtype=dtype)
    on = one(1, torch.int64)
    args = (x(), on, on.clone(), one(0.0), one(0.0), one(1.0), one(0, torch.int32), 0.01, 0, 255, 0)
    return torch.fused_moving_avg_obs_fake_quant(*args)


WRITERS: dict[str, Callable[[], Any]] = {
    "add out": lambda: torch.add(X, 1, out=x()),
    "add out resized": lambda: torch.add(X, 1, out=torch.empty(0)),
    "max out": lambda: torch.max(X, 1, out=(torch.zeros(3), torch.zeros(3, dtype=torch.int64))),
    "frexp out": lambda: torch.frexp(X, out=(x(), torch.zeros(3, 4, dtype=torch.int32))),
    "svd out": lambda: torch.linalg.svdvals(X, out=torch.zeros(3)),
    "cat out": lambda: torch.cat([X, X], out=torch.zeros(6, 4)),
    "setitem": lambda: x().__setitem__(0, 5),
    "setitem mask": lambda: (y := x()).__setitem__(y > 1, 5),
    "relu_": lambda: torch.relu_(-x()),
    "relu_ by keyword": lambda: torch.relu_(input=-x()),
    "F.threshold_": lambda: torch.threshold_(x(), 0.5, 0),
    "rrelu_with_noise": lambda: torch._C._nn.rrelu_with_noise(-x(), x(), 0.1, 0.3, True),
    "rrelu_with_noise_": lambda: torch._C._nn.rrelu_with_noise_(-x(), x(), 0.1, 0.3, True),
    "batch_norm by position": lambda: torch.batch_norm(X, None, None, *statistics(), True, 0.1, 1e-5, False),
    "native_batch_norm": lambda: torch.native_batch_norm(*norm()),
    "_native_batch_norm_legit": lambda: torch._native_batch_norm_legit(*norm()),
    "batch_norm_update_stats": lambda: torch.batch_norm_update_stats(X, *statistics(), 0.1),
    "embedding_renorm_": lambda: torch.embedding_renorm_(x(), ROW, 0.1, 2.0),
    "foreach add": lambda: torch._foreach_add_([x(), x()], 1),
    "foreach copy": lambda: torch._foreach_copy_([x()], [X * 2]),
    "foreach zero": lambda: torch._foreach_zero_([x()]),
    "foreach clamp": lambda: torch._foreach_clamp_max_([x()], 0.1),
    "foreach lerp": lambda: torch._foreach_lerp_([x()], [X * 2], 0.5),
    "foreach addcdiv": lambda: torch._foreach_addcdiv_([x()], [X], [X]),
    **{name: (lambda name=name: fused(name)) for name in FUSED},
    **{f"{name} unscaling": (lambda name=name: fused(name, torch.tensor(4.0))) for name in FUSED[:3]},
    "amp": amp,
    "observer": quantization_observer,
    "index_put_": lambda: torch.index_put_(x(), (ROW,), torch.tensor(9.0)),
    "index_put_ by keyword": lambda: torch.index_put_(
        input=x(), indices=(ROW,), values=torch.tensor(9.0)
    ),
    "_index_put_impl_": lambda: torch._index_put_impl_(x(), (ROW,), torch.tensor(9.0)),
    "aten.add_": lambda: torch.ops.aten.add_(x(), 1),
    "aten.add_.Tensor": lambda: torch.ops.aten.add_.Tensor(x(), X),
    "aten.add.out": lambda: torch.ops.aten.add.out(X, X, out=x()),
    "aten.index_put_": lambda: torch.ops.aten.index_put_(x(), [None, ROW], torch.tensor(9.0)),
    "aten.copy_": lambda: torch.ops.aten.copy_(x(), X * 2),
    "aten.native_batch_norm": lambda: torch.ops.aten._native_batch_norm_legit(*norm()),
    "aten.t_": lambda: torch.ops.aten.t_(x()),
    "aten.resize_": lambda: torch.ops.aten.resize_(x(), [2, 2]),
    "cummax helper": lambda: torch._cummax_helper(X, x(), x().long() * 0 - 1, 0),
}  # fmt: skip


MARKED_AS_WRITTEN = {
    "_fused_adagrad_": ["_fused_adagrad_: argument 3"],
    "amp": ["_amp_foreach_non_finite_check_and_unscale_: argument 0"],  # infinity, scaled
    "observer": ["fused_moving_avg_obs_fake_quant: argument 6"],
    "cummax helper": ["_cummax_helper: argument 1"],
}
"""What torch marks as written although the call leaves it as it was, or writes what was there."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", WRITERS)
def test_a_call_that_changes_an_argument_announces_it(case: str) -> None:
    mode = watched(WRITERS[case])
    assert mode.changed, "nothing was changed: the case shows nothing"
    assert mode.missed == []
    assert mode.invented == MARKED_AS_WRITTEN.get(case, [])


READERS: dict[str, Callable[[], Any]] = {
    "add": lambda: torch.add(X, 1),
    "index_put": lambda: torch.index_put(X, (ROW,), torch.tensor(9.0)),
    "scatter": lambda: torch.scatter(X, 0, AT, 9),
    "foreach add": lambda: torch._foreach_add([X], 1),
    "aten.add": lambda: torch.ops.aten.add(X, 1),
    "aten.add.Tensor": lambda: torch.ops.aten.add.Tensor(X, X),
    "transpose": lambda: X.transpose(0, 1),
    "getitem": lambda: X[0],
    "invert": lambda: ~ROW,
    "attention": lambda: F.scaled_dot_product_attention(X, X, X),
    "out none": lambda: torch.add(X, 1, out=None),
}  # fmt: skip


@pytest.mark.parametrize("case", READERS)
def test_a_call_that_changes_nothing_announces_nothing(case: str) -> None:
    mode = watched(READERS[case])
    assert (mode.changed, mode.missed, mode.invented) == (set(), [], [])


def test_dunder_names_are_no_writes() -> None:
    names = [name for name in dir(Tensor) if name.startswith("__") and name.endswith("__")]
    known = {
        name for name in names if callable(getattr(Tensor, name)) and writes_of(getattr(Tensor, name), name)
    }
    in_place = {"__iand__", "__ior__", "__ixor__", "__ilshift__", "__irshift__", "__ipow__", "__idiv__"}
    assert known == {"__setitem__"} | (in_place & set(names))


# ---- functions that torch wrote in Python, as they are recorded ----------------------------------

ON_A_TENSOR: dict[str, Callable[[Tensor], Any]] = {
    "relu": lambda y: F.relu(y, inplace=True),
    "elu": lambda y: F.elu(y, inplace=True),
    "hardtanh": lambda y: F.hardtanh(y, 0, 0.1, inplace=True),
    "silu": lambda y: F.silu(y, inplace=True),
    "mish": lambda y: F.mish(y, inplace=True),
    "selu": lambda y: F.selu(y, inplace=True),
    "celu": lambda y: F.celu(y, inplace=True),
    "leaky_relu": lambda y: F.leaky_relu(y, inplace=True),
    "hardsigmoid": lambda y: F.hardsigmoid(y, inplace=True),
    "hardswish": lambda y: F.hardswish(y, inplace=True),
    "relu6": lambda y: F.relu6(y, inplace=True),
    "threshold": lambda y: F.threshold(y, 0.1, 9, inplace=True),
    "rrelu": lambda y: F.rrelu(y, training=True, inplace=True),
    "dropout": lambda y: F.dropout(y, 0.9, True, inplace=True),
    "alpha_dropout": lambda y: F.alpha_dropout(y, 0.9, True, inplace=True),
    "feature_alpha_dropout": lambda y: F.feature_alpha_dropout(y, 0.9, True, inplace=True),
    "F.relu_": lambda y: F.relu_(y),
    "embedding max_norm": lambda y: F.embedding(torch.tensor([2, 0]), y, max_norm=0.1),
    "embedding_bag max_norm": lambda y: F.embedding_bag(torch.tensor([[0, 1], [1, 2]]), y, max_norm=0.1),
    "zeros init": lambda y: nn.init.zeros_(y),
    "constant init": lambda y: nn.init.constant_(y, 3),
    "normal init by keyword": lambda y: nn.init.normal_(tensor=y),
    "xavier init": lambda y: nn.init.xavier_uniform_(y),
    "kaiming init": lambda y: nn.init.kaiming_normal_(y),
    "trunc_normal init": lambda y: nn.init.trunc_normal_(y),
    "orthogonal init": lambda y: nn.init.orthogonal_(y),
    "eye init": lambda y: nn.init.eye_(y),
    "batch_norm mean": lambda y: F.batch_norm(torch.rand(3, 4), y[0], torch.ones(4), training=True),
    "instance_norm mean": lambda y: F.instance_norm(torch.rand(2, 4, 5), y[0], torch.ones(4)),
    "normalize out": lambda y: F.normalize(torch.rand(3, 4), out=y),
    "setitem of a slice of a view": lambda y: y.t()[1:].__setitem__(slice(None), 0),
    "masked_fill through a view": lambda y: y[1].masked_fill_(torch.tensor([True, False, True, False]), 0),
    "copyto": lambda y: y.copy_(torch.zeros(3, 4)),
}


@pytest.mark.parametrize("case", ON_A_TENSOR)
def test_a_write_by_a_function_written_in_python_is_followed(case: str) -> None:
    def step(x: Tensor) -> Tensor:
        y = x.clone()
        ON_A_TENSOR[case](y)
        return y.cos()

    x = -X if case != "embedding max_norm" else X
    trace = tl.trace(step, x)
    assert not torch.equal(trace["cos_1"].args[0].out, x), "nothing was written: the case shows nothing"
    assert torch.equal(trace["clone_1"].out, x)
    assert [op.label for op in trace["cos_1"].parents][-1] != "clone_1:1"
    assert torch.equal(trace["cos_1"].out, trace["cos_1"].args[0].out.cos())


def test_clipped_gradients_are_written() -> None:
    parameter = nn.Parameter(x())
    parameter.grad = torch.full((3, 4), 5.0)
    with tl.capture(nn.Identity()) as trace:
        before = parameter.grad * 1
        nn.utils.clip_grad_value_([parameter], 0.5)
        after = parameter.grad.exp()
    assert torch.equal(trace["mul_1"].args[0].out, torch.full((3, 4), 5.0))
    assert torch.equal(trace["exp_1"].args[0].out, torch.full((3, 4), 0.5))
    todo = list(trace["exp_1"].ops)
    found: set[str] = set()
    while todo:
        op = todo.pop()
        found.add(op.type)
        todo.extend(op.parents)
    assert any("clamp" in name for name in found), found


def test_an_announced_write_makes_the_next_reader_its_child() -> None:
    def step(x: Tensor) -> Tensor:
        first, second = x * 0, x * 0 + 1
        torch._foreach_add_([first, second], 1)
        return first + second

    trace = tl.trace(step, X)
    assert [op.type for op in trace["add_2"].parents] == ["foreach_add", "foreach_add"]
    assert [op.output_slot for op in trace["add_2"].parents] == [0, 1]


def test_moments_written_by_a_fused_step_have_it_as_parent() -> None:
    moments, squares = X[0] * 0, X[0] * 0
    betas = {"beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "amsgrad": False}
    rates = {"lr": 0.1, "weight_decay": 0.0, "maximize": False}

    def step(parameter: Tensor, moments: Tensor, squares: Tensor) -> Tensor:
        moments, squares = moments * 1, squares * 1
        torch._fused_adam_(
            [parameter], [parameter * 1], [moments], [squares], [], [torch.tensor(1.0)], **betas, **rates
        )
        return moments + 1

    trace = tl.trace(step, (X[0].clone(), moments, squares))
    assert "fused_adam" in {op.type for op in trace["add_1"].parents}
    assert torch.equal(trace["mul_1:1"].out, moments)
