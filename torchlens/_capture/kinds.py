"""What sort of call a torch function is, decided once when it is first seen.

Most functions are plain: call, and record the call if a tensor comes back. The rest need something more
before or after, and what that is stands in a `Special`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import FunctionType, MethodWrapperType
from typing import Any, Final, TypeAlias

import torch
from torch._ops import HigherOrderOperator

from torchlens._capture.fused import KERNELS
from torchlens._capture.python_calls import is_leaf, torch_wrote
from torchlens._capture.writes import Writes, overloads_of, writes_of
from torchlens._keys.sides import needs_side

PLAIN: Final = "plain"
SIDED: Final = "sided"
"""Plain, but with a non-tensor argument the call does not tell `x + 1` from `1 + x`."""
INERT: Final = "inert"
"""Tells about a tensor and gives none: called at once and not recorded."""
ATTRIBUTE: Final = "attribute"
"""Reads or sets an attribute of a tensor: an op where it gives a tensor, or sets `data`."""

_INERT_NAMES = frozenset(
    "size dim ndimension stride numel nelement storage_offset element_size is_contiguous is_floating_point "
    "is_complex is_conj is_neg is_signed is_same_size is_set_to is_shared is_pinned is_inference "
    "is_coalesced is_distributed has_names get_device type_as_string __len__ __hash__ __dir__ __class__ "
    "layout itemsize result_type can_cast promote_types is_tensor is_storage _is_view _is_zerotensor "
    "retain_grad register_hook register_post_accumulate_grad_hook sparse_dim dense_dim _nnz "
    "dim_order _set_grad_enabled qscheme q_scale q_zero_point q_per_channel_axis "
    "get_default_dtype __sizeof__".split()
)
_INERT_ATTRIBUTES = frozenset(
    "shape dtype device layout ndim itemsize nbytes requires_grad is_leaf is_cuda is_cpu is_meta is_nested "
    "is_quantized is_sparse".split()
)
_READ_NAMES = frozenset(
    "item tolist numpy __array__ __bool__ __int__ __float__ __complex__ __index__ __nonzero__ __long__ "
    "equal allclose is_nonzero __contains__ __repr__ __str__ __format__ __dlpack__ data_ptr untyped_storage "
    "storage __reduce_ex__ __reduce__ is_same".split()
)
_QUIET_NAMES = frozenset({"backward", "grad"})
_FACTORY_NAMES = frozenset(
    "tensor as_tensor asarray scalar_tensor zeros ones empty full arange range linspace logspace eye rand "
    "randn randint randperm normal empty_strided tril_indices triu_indices complex from_file frombuffer "
    "bartlett_window blackman_window hamming_window hann_window kaiser_window".split()
)
_FROM_HOST_NAMES = frozenset("tensor as_tensor asarray frombuffer new new_tensor __array_wrap__".split())
_DROPOUT_NAMES = frozenset(
    "dropout dropout_ alpha_dropout alpha_dropout_ feature_dropout feature_dropout_ "
    "feature_alpha_dropout feature_alpha_dropout_".split()
)
"""Called as (input, p, train)."""
Draws: TypeAlias = Callable[[tuple[Any, ...], Mapping[str, Any]], bool]


@dataclass(frozen=True)
class Special:
    """A function whose calls need more than to be called and recorded."""

    name: str
    writes: Writes | None = None
    """Which arguments it writes into, if it writes."""
    draws: Draws | None = None
    """Whether a call draws from a generator; None when none does."""
    read: bool = False
    """It hands the value itself to Python (`item`, `bool`, `numpy`)."""
    python: bool = False
    """It is written in Python and can be entered."""
    patched: bool = False
    """Somebody else's function, put in the place of torch's."""
    quiet: bool = False
    """It runs backward: what happens inside is not forward."""
    boundary: bool = False
    """One op for much work: a kernel of whole modules, the gradients of a backward."""
    control_flow: bool = False
    """A higher-order operator: it calls functions that it is given."""
    from_host: bool = False
    """It makes a tensor of what may be data of numpy or Python lists."""
    factory: bool = False
    """It makes a tensor from the default dtype and device."""


ORDINARY: Final = Special("")


def classify(func: Callable[..., Any]) -> str | Special:
    """`PLAIN`, `SIDED`, `INERT`, `ATTRIBUTE` or a `Special` for a torch function.

    Torch makes a new wrapper for each read of an attribute; those of one attribute are equal.
    """
    if type(func) is MethodWrapperType:
        wrapper: Any = func
        is_inert = wrapper.__name__ == "__get__" and wrapper.__self__.__name__ in _INERT_ATTRIBUTES
        return INERT if is_inert else ATTRIBUTE
    if type(func) is FunctionType and not torch_wrote(func):
        return Special(func.__name__, patched=True)  # not remembered: it would be kept alive
    return _classify(func)


@lru_cache(maxsize=4096)
def _classify(func: Callable[..., Any]) -> str | Special:
    name: str = getattr(func, "__name__", type(func).__name__).partition(".")[0]
    if name in _INERT_NAMES:
        return INERT
    python = hasattr(func, "__code__") and not is_leaf(func)
    special = Special(
        name=name,
        writes=writes_of(func, name),
        draws=_draws(name) if not python and _is_random(func, name) else None,
        read=name in _READ_NAMES,
        python=python,
        quiet=hasattr(func, "__code__") and name in _QUIET_NAMES,
        boundary=name in KERNELS or func is torch.autograd.grad,
        control_flow=isinstance(func, HigherOrderOperator),
        factory=name in _FACTORY_NAMES,
        from_host=name in _FROM_HOST_NAMES,
    )
    if special == Special(name):
        return SIDED if needs_side(name) else PLAIN
    return special


def _draws(name: str) -> Draws:
    """When a function that can draw does: dropout only in training, attention only with a dropout."""
    if name in _DROPOUT_NAMES:
        return lambda args, kwargs: bool(args[1]) and bool(args[2]) if len(args) > 2 else True
    if name == "scaled_dot_product_attention":
        return lambda args, kwargs: bool(args[4] if len(args) > 4 else kwargs.get("dropout_p"))
    return lambda args, kwargs: True


def _is_random(func: Callable[..., Any], name: str) -> bool:
    """Whether torch tags any overload of the function as drawing from a generator."""
    overloads = overloads_of(func) or overloads_of(getattr(torch.ops.aten, name, None))
    return any(torch.Tag.nondeterministic_seeded in overload.tags for overload in overloads)
