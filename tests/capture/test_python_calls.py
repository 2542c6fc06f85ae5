"""Entering torch's Python-written functions changes nothing but what is seen."""

import contextlib
import copy
import functools
import gc
import linecache
import random
import sys
import types
import warnings
import weakref

import pytest
import torch
from torch import Tensor, nn, overrides
from torch.nn import functional as F
from torch.nn import init
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten

from torchlens._capture.python_calls import PythonCalls, is_leaf

ONES, THREE = torch.ones(2, 2), torch.ones(3)


class Entering(TorchFunctionMode):
    """The least of a capture: enters what can be entered, calls the rest, writes down both."""

    def __init__(self):
        self.python_calls = PythonCalls()
        self.innermost = None
        self.entered = []
        self.called = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs, caller = kwargs or {}, sys._getframe(1)
        func = self.python_calls.unpatched(func, caller)
        clone = self.python_calls.find(func, types, args, kwargs, caller, self.innermost)
        if clone is None:
            self.called.append(func)
            return func(*args, **kwargs)
        self.entered.append(func)
        outer, self.innermost = self.innermost, (func, args, kwargs)
        below = torch._C._pop_torch_function_stack() if torch._C._len_torch_function_stack() else None
        try:
            torch._C._push_on_torch_function_stack(self)
            return clone(*args, **kwargs)
        finally:
            torch._C._pop_torch_function_stack()
            if below is not None:  # a default device, which has handed the function on by now
                torch._C._push_on_torch_function_stack(below)
            self.innermost = outer

    def __exit__(self, *exception):
        super().__exit__(*exception)
        self.python_calls.close()

    @property
    def names(self):
        return [func.__name__ for func in self.called if func.__name__ != "__get__"]


def randn(*shape, grad=False, dtype=torch.float32):
    return torch.randn(*shape, dtype=dtype).requires_grad_(grad)


def labels(*shape, high=3):
    return torch.randint(high, shape)


def losses():
    x, y, probability = randn(4, 3, grad=True), randn(4, 3), torch.rand(4, 3)
    sign = labels(4, high=2) * 2 - 1
    yield "mse_loss", F.mse_loss, (x, y), {}
    yield "mse_loss_weight", F.mse_loss, (x, y), {"weight": probability}
    yield "mse_loss_reduce", F.mse_loss, (x, y), {"size_average": False}
    yield "l1_loss", F.l1_loss, (x, y), {"reduction": "sum"}
    yield "smooth_l1_loss", F.smooth_l1_loss, (x, y), {"beta": 0.5}
    yield "huber_loss", F.huber_loss, (x, y), {"delta": 0.3}
    yield "cross_entropy", F.cross_entropy, (x, labels(4)), {"label_smoothing": 0.1}
    yield "nll_loss", F.nll_loss, (x, labels(4)), {"weight": torch.rand(3)}
    yield "kl_div", F.kl_div, (x, probability), {"reduction": "batchmean"}
    yield "binary_cross_entropy", F.binary_cross_entropy, (probability, torch.rand(4, 3)), {}
    yield (
        "bce_with_logits",
        F.binary_cross_entropy_with_logits,
        (x, probability),
        {"pos_weight": torch.rand(3)},
    )
    yield "poisson_nll_loss", F.poisson_nll_loss, (x, probability), {"full": True}
    yield "gaussian_nll_loss", F.gaussian_nll_loss, (x, y, probability), {"full": True}
    yield "hinge_embedding_loss", F.hinge_embedding_loss, (randn(4), sign.float()), {}
    yield "soft_margin_loss", F.soft_margin_loss, (randn(4), sign.float()), {}
    yield "multilabel_margin_loss", F.multilabel_margin_loss, (x, labels(4, 3)), {}
    yield "multilabel_soft_margin_loss", F.multilabel_soft_margin_loss, (x, probability.round()), {}
    yield "multi_margin_loss", F.multi_margin_loss, (x, labels(4)), {"weight": torch.rand(3)}
    yield "cosine_embedding_loss", F.cosine_embedding_loss, (x, y, sign), {"margin": 0.1}
    yield "margin_ranking_loss", F.margin_ranking_loss, (randn(4), randn(4), sign), {}
    yield "triplet_margin_loss", F.triplet_margin_loss, (x, y, randn(4, 3)), {"swap": True}
    distance = {"distance_function": F.pairwise_distance}
    yield "triplet_with_distance", F.triplet_margin_with_distance_loss, (x, y, randn(4, 3)), distance
    lengths = torch.full((2,), 5), torch.full((2,), 2)
    yield "ctc_loss", F.ctc_loss, (randn(5, 2, 4).log_softmax(-1), labels(2, 2) + 1, *lengths), {}
    if hasattr(F, "linear_cross_entropy"):
        yield "linear_cross_entropy", F.linear_cross_entropy, (x, randn(5, 3), labels(4)), {}


def activations():
    x = randn(2, 4, grad=True)
    for name in "relu relu6 elu celu selu silu mish hardtanh leaky_relu softsign tanhshrink".split():
        yield name, getattr(F, name), (x,), {}
    for name in "relu relu6 elu celu selu silu mish hardtanh leaky_relu hardsigmoid hardswish".split():
        yield f"{name}_inplace", getattr(F, name), (randn(2, 4),), {"inplace": True}
    yield "threshold", F.threshold, (x, 0.1, 5.0), {}
    yield "glu", F.glu, (x,), {}
    yield "rrelu", F.rrelu, (x,), {"training": True}
    yield "softmax", F.softmax, (x, 1), {"dtype": torch.float64}
    yield "log_softmax", F.log_softmax, (x,), {"dim": 0}
    yield "softmin", F.softmin, (x,), {"dim": -1}
    yield "gumbel_softmax", F.gumbel_softmax, (x,), {"tau": 0.7, "hard": True}


def random_layers():
    x, volume = randn(2, 4, grad=True), randn(2, 3, 2, 2, 2)
    yield "dropout", F.dropout, (x,), {"p": 0.4}
    yield "dropout_eval", F.dropout, (x,), {"training": False}
    yield "dropout_inplace", F.dropout, (randn(2, 4),), {"inplace": True}
    yield "alpha_dropout", F.alpha_dropout, (x,), {"training": True}
    yield "feature_alpha_dropout", F.feature_alpha_dropout, (volume,), {"training": True}
    yield "dropout1d", F.dropout1d, (volume[..., 0, 0],), {}
    yield "dropout2d", F.dropout2d, (volume[..., 0],), {}
    yield "dropout3d", F.dropout3d, (volume,), {}


def normalizations():
    x = randn(2, 4, 5, grad=True)
    yield "normalize", F.normalize, (x,), {"dim": 1}
    yield "normalize_out", F.normalize, (randn(2, 4),), {"out": torch.empty(2, 4)}
    yield "layer_norm", F.layer_norm, (x, (5,), randn(5), randn(5)), {}
    yield "rms_norm", F.rms_norm, (x, (5,), randn(5)), {}
    yield "group_norm", F.group_norm, (x, 2, randn(4), randn(4)), {}
    yield "batch_norm", F.batch_norm, (x, torch.zeros(4), torch.ones(4)), {"training": True}
    yield "batch_norm_eval", F.batch_norm, (x, torch.zeros(4), torch.ones(4)), {}
    yield "instance_norm", F.instance_norm, (x, torch.zeros(4), torch.ones(4)), {}
    yield "local_response_norm", F.local_response_norm, (x, 2), {}


def pools():
    line, plane, volume = randn(2, 3, 8, grad=True), randn(2, 3, 8, 8), randn(1, 2, 6, 6, 6)
    for number, x in enumerate((line, plane, volume), start=1):
        for indices in (False, True):
            suffix = f"{number}d_indices" if indices else f"{number}d"
            flag = {"return_indices": indices}
            yield f"max_pool{suffix}", getattr(F, f"max_pool{number}d"), (x, 2), flag
            yield f"adaptive_max_pool{suffix}", getattr(F, f"adaptive_max_pool{number}d"), (x, 3), flag
            if number > 1:
                function = getattr(F, f"fractional_max_pool{number}d")
                yield f"fractional_max_pool{suffix}", function, (x, 2), {"output_size": 2, **flag}
        yield f"lp_pool{number}d", getattr(F, f"lp_pool{number}d"), (x, 2.0, 2), {}
        pooled, where = getattr(F, f"max_pool{number}d")(x.detach(), 2, return_indices=True)
        yield f"max_unpool{number}d", getattr(F, f"max_unpool{number}d"), (pooled, where, 2), {}
    yield "max_pool2d_positional", F.max_pool2d, (plane, 2, 2, 0, 1, False, True), {}
    yield "adaptive_avg_pool2d", F.adaptive_avg_pool2d, (plane, (3, None)), {}
    yield "adaptive_avg_pool3d", F.adaptive_avg_pool3d, (volume, 2), {}


def images():
    x = randn(1, 2, 4, 4, grad=True)
    yield "pad", F.pad, (x, (1, 1)), {"mode": "reflect"}
    yield "interpolate_nearest", F.interpolate, (x,), {"scale_factor": 2}
    bilinear = {"scale_factor": 1.7, "mode": "bilinear", "recompute_scale_factor": True}
    yield "interpolate_bilinear", F.interpolate, (x,), bilinear
    yield "interpolate_antialias", F.interpolate, (x, (3, 3)), {"mode": "bicubic", "antialias": True}
    yield "upsample", F.upsample, (x, 8), {}
    yield "grid_sample", F.grid_sample, (x, torch.rand(1, 3, 3, 2)), {"align_corners": False}
    yield "affine_grid", F.affine_grid, (randn(1, 2, 3), (1, 1, 2, 2)), {"align_corners": True}
    yield "unfold", F.unfold, (x, 2), {}
    yield "fold", F.fold, (randn(1, 8, 9), (4, 4), 2), {}


def embeddings():
    weight = randn(5, 3)
    yield "embedding", F.embedding, (labels(2, 4), weight), {"padding_idx": 0}
    yield "embedding_max_norm", F.embedding, (labels(2, 4), weight), {"max_norm": 0.5}
    yield "embedding_bag", F.embedding_bag, (labels(2, 4), weight), {"mode": "max"}
    attention = (randn(5, 2, 8), randn(6, 2, 8), randn(6, 2, 8), 8, 2, randn(24, 8), randn(24))
    rest = (None, None, False, 0.1, randn(8, 8), randn(8))
    yield "multi_head_attention", F.multi_head_attention_forward, (*attention, *rest), {}
    yield (
        "multi_head_no_weights",
        F.multi_head_attention_forward,
        (*attention, *rest),
        {"need_weights": False},
    )


def functional():
    a, b, signal = randn(3, 4, grad=True), randn(4, 5), randn(2, 400)
    window = {"window": torch.hann_window(64)}
    yield "einsum", torch.einsum, ("ij,jk->ik", a, b), {}
    yield "einsum_list", torch.einsum, ("ij,jk->ik", [a, b]), {}
    yield "einsum_list_of_one", torch.einsum, ("ij->j", [a]), {}
    yield "einsum_sublists", torch.einsum, (a, [0, 1], b, [1, 2], [0, 2]), {}
    yield "tensordot", torch.tensordot, (a, b), {"dims": 1}
    yield "norm", torch.norm, (a,), {"dim": 1}
    yield "norm_fro", torch.norm, (a, "fro"), {}
    yield "norm_nuc", torch.norm, (a, "nuc"), {}
    yield "norm_out", torch.norm, (randn(3, 4), 2, 1), {"out": torch.empty(3)}
    yield "split", torch.split, (a, [1, 2]), {}
    yield "unique", torch.unique, (labels(6),), {}
    yield "unique_counts", torch.unique, (labels(6),), {"return_counts": True}
    yield "unique_inverse", torch.unique, (labels(6), True, True), {}
    yield "unique_both", torch.unique, (labels(3, 2), True, True, True), {"dim": 0}
    yield "unique_consecutive", torch.unique_consecutive, (labels(6),), {"return_inverse": True}
    yield "stft", torch.stft, (signal, 64), {"return_complex": True, **window}
    yield "meshgrid", torch.meshgrid, (randn(2), randn(3)), {"indexing": "xy"}
    yield "meshgrid_list", torch.meshgrid, ([randn(2), randn(3)],), {"indexing": "ij"}
    yield "broadcast_tensors", torch.broadcast_tensors, (a, randn(1, 4)), {}
    for number in (1, 2, 3):
        yield f"atleast_{number}d", getattr(torch, f"atleast_{number}d"), (torch.tensor(1.0), randn(2)), {}
        yield f"atleast_{number}d_one", getattr(torch, f"atleast_{number}d"), (torch.tensor(1.0),), {}
    yield "block_diag", torch.block_diag, (a, b), {}
    yield "cartesian_prod", torch.cartesian_prod, (randn(2), randn(3)), {}
    yield "cdist", torch.cdist, (a, randn(2, 4)), {}
    yield "chain_matmul", torch.chain_matmul, (a, b, randn(5, 2)), {}
    yield "unravel_index", torch.unravel_index, (labels(4), (2, 3)), {}
    yield "lu", torch.lu, (randn(3, 3),), {}
    yield "lu_infos", torch.lu, (randn(3, 3),), {"get_infos": True}
    symmetric = torch.diag(torch.arange(1.0, 13.0))
    yield "lobpcg", torch.lobpcg, (nn.Parameter(symmetric, requires_grad=False), 2), {"niter": 2}
    yield "pca_lowrank", torch.pca_lowrank, (nn.Parameter(randn(6, 4)), 2), {}
    yield "svd_lowrank", torch.svd_lowrank, (nn.Parameter(randn(6, 4)), 2), {}
    for name in "float int not".split():
        yield f"sym_{name}", getattr(torch, f"sym_{name}"), (True,), {}
    yield "sym_max", torch.sym_max, (2, 3.0), {}
    yield "sym_min", torch.sym_min, (2, 3), {}
    yield "sym_ite", torch.sym_ite, (True, 2, 3), {}
    if hasattr(torch, "sym_sum"):
        yield "sym_sum", torch.sym_sum, ((1, 2),), {}
    for name in "sqrt cos cosh sin sinh tan tanh asin acos atan".split():
        yield f"sym_{name}", getattr(torch, f"_sym_{name}"), (0.5,), {}


def methods():
    a, signal = randn(3, 4, grad=True), randn(2, 400)
    window = {"window": torch.hann_window(64)}
    spectrum = torch.stft(signal, 64, return_complex=True, **window)
    yield "Tensor.norm", Tensor.norm, (a, 2), {}
    yield "Tensor.split", Tensor.split, (a, 2), {"dim": 1}
    yield "Tensor.split_sizes", Tensor.split, (a, [1, 2]), {}
    yield "Tensor.unique", Tensor.unique, (labels(6),), {"return_counts": True}
    yield "Tensor.unique_consecutive", Tensor.unique_consecutive, (labels(6),), {}
    yield "Tensor.stft", Tensor.stft, (signal, 64), {"return_complex": True, **window}
    yield "Tensor.istft", Tensor.istft, (spectrum, 64), window
    yield "Tensor.lu", Tensor.lu, (randn(3, 3),), {}
    yield "Tensor.unflatten", Tensor.unflatten, (a, 1, (2, 2)), {}
    yield "Tensor.resize", Tensor.resize, (a, 4, 3), {}
    yield "Tensor.resize_as", Tensor.resize_as, (a, randn(4, 3)), {}
    yield "Tensor.__reversed__", Tensor.__reversed__, (a,), {}
    yield "Tensor.__contains__", Tensor.__contains__, (randn(3), 2.0), {}
    yield "Tensor.module_load", Tensor.module_load, (randn(3), randn(3)), {}
    yield "Tensor.__pow__", Tensor.__pow__, (a, 2), {}
    yield "Tensor.__ipow__", Tensor.__ipow__, (randn(3), 2), {}
    yield "Tensor.__len__", Tensor.__len__, (a,), {}
    for name in "rsub rdiv rpow floordiv rfloordiv rmod".split():
        yield f"Tensor.__{name}__", getattr(Tensor, f"__{name}__"), (torch.rand(3) + 1, 2), {}
    yield "Tensor.__rsub___refused", Tensor.__rsub__, (a, "text"), {}
    yield "Tensor.__rmatmul__", Tensor.__rmatmul__, (randn(3, 3), randn(3, 3)), {}
    yield "Tensor.__rlshift__", Tensor.__rlshift__, (labels(3), 2), {}
    yield "Tensor.__rrshift__", Tensor.__rrshift__, (labels(3), 8), {}
    yield "Tensor.__repr__", Tensor.__repr__, (a,), {}
    yield "Tensor.__format__", Tensor.__format__, (torch.tensor(2.5), ".3f"), {}
    yield "Tensor.__deepcopy__", copy.deepcopy, (randn(3),), {}
    yield "Tensor.__array__", Tensor.__array__, (randn(3),), {}


def initializers():
    yield "init.normal_", init.normal_, (torch.empty(3, 4),), {"std": 0.2}
    yield "init.uniform_", init.uniform_, (torch.empty(3, 4), -1, 2), {}
    yield "init.constant_", init.constant_, (torch.empty(3), 0.3), {}
    yield "init.kaiming_uniform_", init.kaiming_uniform_, (torch.empty(3, 4),), {"a": 0.1}
    yield "init.xavier_normal_", init.xavier_normal_, (torch.empty(3, 4),), {}
    yield "init.orthogonal_", init.orthogonal_, (torch.empty(3, 4),), {}


def errors():
    x = randn(2, 4)
    yield "dropout_probability", F.dropout, (x,), {"p": 2.0}
    yield "relu_of_text", F.relu, ("text",), {}
    yield "layer_norm_shape", F.layer_norm, (x, (3,)), {}
    yield "interpolate_mode", F.interpolate, (x,), {"scale_factor": 2, "mode": "other"}
    yield "interpolate_both", F.interpolate, (randn(1, 1, 4), 2, 2.0), {}
    yield "cross_entropy_reduction", F.cross_entropy, (x, labels(2)), {"reduction": "other"}
    yield "embedding_bag_mode", F.embedding_bag, (labels(2, 2), randn(3, 2)), {"mode": "other"}
    yield "einsum_equation", torch.einsum, ("ij,jk", x, x), {}
    yield "split_size", torch.split, (x, [1, 5]), {}
    yield "max_pool2d_size", F.max_pool2d, (randn(1, 1, 2, 2), 5), {}
    yield "max_pool2d_argument", F.max_pool2d, (randn(1, 1, 2, 2), 2), {"unknown": 1}
    yield "fractional_max_pool2d_sizes", F.fractional_max_pool2d, (randn(1, 1, 4, 4), 2), {}
    yield "unflatten_sizes", Tensor.unflatten, (x, 1, ()), {}
    yield "norm_p", torch.norm, (x, "other"), {}
    yield "multi_head_size", F.multi_head_attention_forward, _bad_attention(), {}
    yield "missing_argument", F.softsign, (), {}
    yield "index_batch_norm", F.batch_norm, (randn(1, 3), None, None), {"training": True}


def _bad_attention():
    x = randn(5, 2, 8)
    return (x, x, x, 7, 2, randn(24, 8), randn(24), None, None, False, 0.0, randn(8, 8), randn(8))


def all_cases():
    torch.manual_seed(0)
    groups = (
        losses,
        activations,
        random_layers,
        normalizations,
        pools,
        images,
        embeddings,
        functional,
        methods,
        initializers,
        errors,
    )
    for group in groups:
        for name, function, args, kwargs in group():
            yield pytest.param(function, args, kwargs, id=name)


CASES = list(all_cases())


def described(value):
    """Everything about a result that a user could tell apart."""
    if not isinstance(value, Tensor):
        return type(value), repr(value)
    dense = value.detach().resolve_conj().contiguous()
    is_empty = dense.is_meta or not dense.numel()
    numbers = b"" if is_empty else dense.flatten().view(torch.uint8).numpy().tobytes()
    gradient = value.grad_fn.name() if value.grad_fn is not None else None
    kind = value.dtype, value.device, value.shape, value.stride()
    return type(value), kind, value.requires_grad, gradient, numbers


def described_all(values):
    leaves, structure = tree_flatten(values)
    return [described(leaf) for leaf in leaves if not callable(leaf)], str(structure)


def outcome(function, args, kwargs, mode):
    """What a call gives, what it leaves in its arguments, and the random state after it."""
    args, kwargs = copy.deepcopy((args, kwargs))
    torch.manual_seed(7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with mode or contextlib.nullcontext():
                result = function(*args, **kwargs)
            result = described_all(result)
        except Exception as error:
            result = type(error), str(error)
    return result, described_all((args, kwargs)), torch.get_rng_state().tolist(), random.getstate()


@pytest.mark.parametrize(("function", "args", "kwargs"), CASES)
def test_entered_equals_plain(function, args, kwargs):
    plain = outcome(function, args, kwargs, None)
    entered = outcome(function, args, kwargs, Entering())
    assert entered == plain
    assert torch._C._len_torch_function_stack() == 0


@pytest.mark.parametrize(("function", "args", "kwargs"), CASES)
def test_entered_equals_plain_under_a_default_device(function, args, kwargs):
    with torch.device("meta"):
        plain = outcome(function, args, kwargs, None)
        entered = outcome(function, args, kwargs, Entering())
        assert torch._C._len_torch_function_stack() == 1 and torch.empty(1).is_meta
    assert entered == plain


@pytest.mark.parametrize(("function", "args", "kwargs"), CASES)
def test_gradients_equal_plain(function, args, kwargs):
    def gradients(mode):
        given = copy.deepcopy((args, kwargs))
        wanted = [leaf for leaf in tree_flatten(given)[0] if isinstance(leaf, Tensor) and leaf.requires_grad]
        torch.manual_seed(7)
        try:
            with mode or contextlib.nullcontext():
                outputs = tree_flatten(function(*given[0], **given[1]))[0]
        except Exception as error:
            return str(error)
        outputs = [each.sum() for each in outputs if isinstance(each, Tensor) and each.requires_grad]
        if not wanted or not outputs:
            return None
        found = torch.autograd.grad(outputs, wanted, allow_unused=True)
        return [None if each is None else described(each) for each in found]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert gradients(Entering()) == gradients(None)


def test_every_function_that_can_be_entered_is_in_the_table():
    entered = set()
    for case in CASES:
        mode = Entering()
        outcome(*case.values, mode)
        entered.update(mode.entered)
    written_in_python = {
        func
        for func in overrides.get_testing_overrides()
        if type(func) is types.FunctionType and not is_leaf(func)
    }
    assert {f"{func.__module__}.{func.__name__}" for func in written_in_python - entered} == set()


SEEN = {
    "multi_head_attention": ["linear", "linear", "linear", "bmm", "softmax", "dropout", "bmm", "linear"],
    "normalize": ["linalg_vector_norm", "clamp_min", "expand_as", "div"],
    "layer_norm": ["layer_norm"],
    "max_pool2d": ["max_pool2d"],
    "max_pool2d_indices": ["max_pool2d_with_indices"],
    "gumbel_softmax": ["exponential_", "log", "neg", "softmax", "max", "scatter_", "detach"],
    "Tensor.split": ["split"],
    "einsum": ["einsum"],
    "einsum_list": ["einsum"],
    "stft": ["pad", "stft"],
    "interpolate_nearest": ["upsample_nearest2d"],
    "norm": ["linalg_vector_norm"],
    "embedding_max_norm": ["embedding_renorm_", "embedding"],
    "unique_both": ["unique_dim"],
    "meshgrid": ["meshgrid"],
    "Tensor.unflatten": ["unflatten"],
    "Tensor.norm": ["linalg_vector_norm"],
    "init.normal_": ["normal_"],
    "init.kaiming_uniform_": ["uniform_"],
    "triplet_with_distance": ["pairwise_distance", "pairwise_distance", "clamp_min"],
}


@pytest.mark.parametrize("device", [None, "cpu", "meta"], ids=["no device", "cpu", "meta"])
@pytest.mark.parametrize("name", SEEN)
def test_inner_functions_are_seen(name, device):
    (case,) = [case for case in CASES if case.id == name]
    mode = Entering()
    with torch.device(device) if device else contextlib.nullcontext():
        outcome(*case.values, mode)
    seen = iter(mode.names)
    assert all(wanted in seen for wanted in SEEN[name]), mode.names  # in this order, others between


def test_frames_inside_carry_torchs_own_code():
    codes = []

    class Watching(Entering):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            codes.append(sys._getframe(1).f_code)
            clone = self.python_calls.find(func, types, args, kwargs, sys._getframe(1), None)
            if clone is None:
                return func(*args, **(kwargs or {}))
            with self:
                return clone(*args, **(kwargs or {}))

    with Watching():
        F.relu(ONES)
    assert codes == [overrides.handle_torch_function.__code__, F.relu.__code__]


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: 2 - x, "__rsub__"),
        (lambda x: 2 / x, "__rdiv__"),
        (lambda x: 2**x, "__rpow__"),
        (lambda x: x**2, "pow"),
        (lambda x: x // 2, "__floordiv__"),
        (lambda x: 2 // x, "__rfloordiv__"),
        (lambda x: 2 % x, "__rmod__"),
        (repr, "__repr__"),
        (copy.deepcopy, "__deepcopy__"),
        (len, "__len__"),
        (lambda x: x.backward(THREE), "backward"),
        (lambda x: torch.autograd.grad(x, x, THREE), "grad"),
        (lambda x: x.register_hook(print), "register_hook"),
        (lambda x: x.detach().__array__(), "__array__"),
    ],
    ids="rsub rdiv rpow pow floordiv rfloordiv rmod repr deepcopy len backward grad hook array".split(),
)
def test_leaves_are_one_call(function, name):
    x = randn(3, grad=True)
    with Entering() as mode:
        function(x)
    assert mode.entered == []
    assert [called for called in mode.names if called != "detach"] == [name]


def test_is_leaf():
    leaves = [
        Tensor.__rsub__,
        Tensor.__pow__,
        Tensor.__repr__,
        Tensor.backward,
        torch.autograd.grad,
        torch.add,
    ]
    assert all(map(is_leaf, leaves))
    assert not any(
        map(is_leaf, [F.relu, torch.einsum, Tensor.split, F.max_pool2d, torch.unique, init.normal_])
    )


class Other(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class Overriding(Tensor):
    pass


def test_another_mode_below_is_shown_the_whole_function():
    with Other(), Entering() as mode:
        F.normalize(ONES)
    assert mode.names == ["normalize"]


def test_another_mode_below_a_default_device_is_shown_the_whole_function():
    with torch.device("cpu"), Other(), Entering() as mode:
        F.normalize(ONES)
    assert mode.names == ["normalize"]


FACTORIES = """
def function(x, ones):
    if overrides.has_torch_function_unary(x):
        return overrides.handle_torch_function(function, (x,), x, ones)
    return ones(2), again(x)
def again(x):
    if overrides.has_torch_function_unary(x):
        return overrides.handle_torch_function(again, (x,), x)
    return torch.zeros(2), torch.zeros_like(x)
"""


def devices(function, mode):
    with torch.device("meta"), mode or contextlib.nullcontext():
        found = tree_flatten(
            [torch.ones(2), function(ONES, lambda length: torch.ones(length)), torch.ones(2)]
        )
    return [tensor.device.type for tensor in found[0]]


def test_factories_inside_are_on_the_device_that_torch_gives_them():
    function, _ = code_of_torch(FACTORIES)
    plain = devices(function, None)
    # torch does not show a default device the inside of its functions
    assert plain == ["meta", "cpu", "cpu", "cpu", "meta"]
    mode = Entering()
    assert devices(function, mode) == plain
    assert [entered.__name__ for entered in mode.entered] == ["function", "again"]
    assert mode.names == ["ones", "ones", "zeros", "zeros_like", "ones"]


def test_a_factory_written_in_python_gets_the_default_device():
    def factory(mode):
        with torch.device("meta"), mode or contextlib.nullcontext():
            return [torch.arange(3).device, torch.nn.Linear(2, 2).weight.device, torch.tensor(1.0).device]

    assert factory(Entering()) == factory(None) == [torch.device("meta")] * 3


def test_an_exception_inside_leaves_the_default_device_in_place():
    with torch.device("meta"), Entering() as mode:
        with pytest.raises(ValueError, match="dropout probability"):
            F.dropout(ONES, p=2.0)
        assert torch._C._len_torch_function_stack() == 2
        assert torch.empty(1).is_meta
    assert mode.entered == [F.dropout]


def test_another_mode_above_does_not_hide_the_inside():
    with Entering() as mode, Other():
        F.normalize(ONES)
    assert "linalg_vector_norm" in mode.names


def test_a_subclass_is_shown_the_whole_function():
    x = ONES.as_subclass(Overriding)
    with Entering() as mode:
        result = F.normalize(x)
    assert type(result) is Overriding and mode.names == ["normalize"]


def test_a_parameter_does_not_count_as_a_subclass():
    with Entering() as mode:
        F.normalize(nn.Parameter(ONES))
    assert F.normalize in mode.entered


def test_what_was_patched_before_is_used(monkeypatch):
    monkeypatch.setattr(F, "linear", lambda x, weight, bias=None: torch.sub(x @ weight.t(), 1))
    (case,) = [case for case in CASES if case.id == "multi_head_attention"]
    plain = outcome(*case.values, None)
    mode = Entering()
    assert outcome(*case.values, mode) == plain
    assert "sub" in mode.names and "linear" not in mode.names


def plus_one(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs) + 1

    return wrapper


@pytest.mark.parametrize(
    ("owner", "name", "call"),
    [
        (F, "relu", lambda x: F.relu(x)),
        (F, "max_pool1d", lambda x: F.max_pool1d(x, 2)),
        (torch, "cdist", lambda x: torch.cdist(x, x)),
        (Tensor, "norm", lambda x: x.norm()),
        (Tensor, "add", lambda x: x.add(2)),
        (Tensor, "unflatten", lambda x: x.unflatten(0, (1, 2))),
        (Tensor, "__rsub__", lambda x: 3 - x),
        (F, "gelu", lambda x: F.gelu(x)),
        (torch, "sin", lambda x: torch.sin(x)),
    ],
    ids="relu max_pool1d cdist norm add unflatten rsub gelu sin".split(),
)
@pytest.mark.parametrize("lambda_", [False, True], ids=["wraps", "lambda"])
def test_a_patched_function_runs_once(monkeypatch, owner, name, call, lambda_):
    original = getattr(owner, name)
    monkeypatch.setattr(
        owner,
        name,
        (lambda *args, **kwargs: original(*args, **kwargs) + 1) if lambda_ else plus_one(original),
    )
    plain = call(ONES)
    with Entering():
        result = call(ONES)
    assert described(result) == described(plain)


def test_other_libraries_functions_are_not_entered():
    def guarded(x):
        if overrides.has_torch_function_unary(x):
            return overrides.handle_torch_function(guarded, (x,), x)
        return x + 1

    with Entering() as mode:
        guarded(ONES)
    assert mode.called == [guarded]


def code_of_torch(source, **names):
    """A function that passes for torch's own."""
    namespace = {"__name__": "torch.pretended", "overrides": overrides, "torch": torch, **names}
    exec(source, namespace)
    return namespace["function"], namespace


WAYS_TO_ASK = {
    "inside_import": """
def function(x):
    from torch.overrides import has_torch_function_unary
    if has_torch_function_unary(x):
        return overrides.handle_torch_function(function, (x,), x)
    return x.sin()
""",
    "another_name": """
from torch.overrides import has_torch_function_variadic as asks
def function(x):
    if asks(x, x) or overrides.has_torch_function((x,)):
        return overrides.handle_torch_function(function, (x,), x)
    return x.sin()
""",
    "helper": """
def has_torch_function(x):
    return overrides.has_torch_function((x,))
def function(x):
    if has_torch_function(x):
        return overrides.handle_torch_function(function, (x,), x)
    return x.sin()
""",
    "writes_globals": """
count = 0
def function(x):
    global count
    if overrides.has_torch_function((x,)):
        return overrides.handle_torch_function(function, (x,), x)
    count += 1
    return x.sin()
""",
}


@pytest.mark.parametrize("way", WAYS_TO_ASK)
def test_every_way_to_ask_ends(way):
    function, namespace = code_of_torch(WAYS_TO_ASK[way])
    with Entering() as mode:
        result = function(ONES)
    assert torch.equal(result, ONES.sin())
    assert len(mode.called) == 1
    assert namespace.get("count", 1) == 1  # a global that the function writes is the module's own


def test_the_same_entry_again_is_a_leaf():
    function, _ = code_of_torch(
        "def function(x):\n"
        "    if overrides.has_torch_function_unary(x):\n"
        "        return overrides.handle_torch_function(function, (x,), x)\n"
        "    return again(x)\n",
        again=lambda x: (
            overrides.handle_torch_function(function, (x,), x)
            if overrides.has_torch_function_unary(x)
            else x.sin()
        ),
    )
    with Entering() as mode:
        result = function(ONES)
    assert torch.equal(result, ONES.sin())
    assert mode.entered == [function] and mode.called == [function]


WARNINGS = {
    "softmax": lambda x: F.softmax(x),
    "log_softmax": lambda x: F.log_softmax(x),
    "mse_loss_broadcast": lambda x: F.mse_loss(x, x[:1]),
    "kl_div": lambda x: F.kl_div(x, x),
    "dropout2d": lambda x: F.dropout2d(x),
    "resize": lambda x: x.resize(4, 3),
    "size_average": lambda x: F.mse_loss(x, x, size_average=True),
    "empty_init": lambda x: init.kaiming_uniform_(torch.empty(0, 3)),
    "grid_sample": lambda x: F.grid_sample(x[None, None], torch.zeros(1, 2, 2, 2)),
}


def warned(function, mode):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with mode or contextlib.nullcontext():
            function(torch.ones(3, 4))
    return [(each.category, str(each.message), each.filename, each.lineno) for each in caught]


@pytest.mark.parametrize("name", WARNINGS)
def test_warnings_point_where_they_would(name):
    plain = warned(WARNINGS[name], None)
    assert len(plain) == 1
    assert warned(WARNINGS[name], Entering()) == plain


def test_a_warning_of_softmax_points_at_the_users_line():
    ((_, _, filename, line),) = warned(WARNINGS["softmax"], Entering())
    assert filename == __file__
    assert "F.softmax(x)" in linecache.getline(filename, line)


def test_a_warning_is_shown_once_over_several_captures():
    source = (
        "import warnings\n"
        "def function(x):\n"
        "    if overrides.has_torch_function_unary(x):\n"
        "        return overrides.handle_torch_function(function, (x,), x)\n"
        "    warnings.warn('told once')\n"
        "    return x.sin()\n"
    )
    function, namespace = code_of_torch(source)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            with Entering():
                function(ONES)
        function(ONES)
    assert len(caught) == 1
    assert "__warningregistry__" in namespace


OWNERS = (torch, F, Tensor, torch.functional, torch._tensor, overrides, init, torch._jit_internal, warnings)


def test_nothing_of_torch_is_changed():
    before = [{name: id(value) for name, value in vars(owner).items()} for owner in OWNERS]
    relu = vars(F.relu).copy(), F.relu.__globals__, F.relu.__closure__
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in CASES:
            outcome(*case.values, Entering())
    assert (vars(F.relu), F.relu.__globals__, F.relu.__closure__) == relu
    for owner, was in zip(OWNERS, before):
        now = {name: id(value) for name, value in vars(owner).items()}
        # Python keeps there which warnings were shown, with a capture as without one.
        changed = {name for name in {*now, *was} if now.get(name) != was.get(name)}
        assert changed <= {"__warningregistry__"}


def test_clones_end_with_the_capture():
    mode = Entering()
    with mode:
        F.softmax(ONES, 1)
        clone = mode.python_calls._clones[F.softmax]
        copied = clone.__globals__
        helper = weakref.ref(copied["_get_softmax_dim"])
    assert helper() is not F._get_softmax_dim
    assert copied["has_torch_function_unary"] is F.has_torch_function_unary  # for closures that live on
    outer = weakref.ref(clone)
    gc.disable()
    try:
        del mode, clone, copied
        assert outer() is None and helper() is None  # no cycle for the collector
    finally:
        gc.enable()


def test_an_exception_leaves_the_mode_as_it_was():
    with Entering() as mode:
        with pytest.raises(ValueError, match="dropout probability"):
            F.dropout(ONES, p=2.0)
        assert torch._C._len_torch_function_stack() == 1
        F.relu(ONES)
    assert mode.innermost is None
    assert mode.names == ["relu"]
