"""Which torch calls write into their arguments, and into which bytes of them.

Torch's schemas alone do not tell (batch norm's carry no mutation mark), so the known writers stand in a
table; of an operator from a library the schema is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor

from torchlens._values.geometry import is_wrapper

Args: TypeAlias = tuple[Any, ...]
Kwargs: TypeAlias = Mapping[str, Any]


@dataclass(slots=True)
class Target:
    """A tensor about to be written: all of it, or only `tensor[index]`."""

    tensor: Tensor
    index: Any = None
    metadata: bool = False
    """Only shape, strides or storage of the tensor object change; no element is written."""
    shown: Tensor | None = None
    """What stands for it among the outputs, where that is another tensor on its storage."""


Writes: TypeAlias = Callable[[Args, Kwargs], list[Target]]
"""Gives the targets of one call from its arguments."""

_NO_DATA_WRITE = frozenset("retain_grad_ share_memory_ rename_ _coalesced_".split())
_METADATA = frozenset(
    "requires_grad_ detach_ unsqueeze_ squeeze_ t_ transpose_ swapaxes_ swapdims_ as_strided_ resize_ "
    "resize_as_ set_ "
    "sparse_resize_ sparse_resize_and_clear_".split()
)
_OPERATOR_WRITERS = frozenset("__iand__ __ior__ __ixor__ __ilshift__ __irshift__ __ipow__ __idiv__".split())
_INDEXED_BY_DIM = frozenset("index_copy_ index_fill_ index_add_ index_reduce_".split())


def writes_of(func: Callable[..., Any], name: str) -> Writes | None:
    """How to find what a call of `func` writes; None when it writes nothing (`out=` is seen apart)."""
    overloads = overloads_of(func)
    if overloads:
        mutating = [overload for overload in overloads if overload._schema.is_mutable]
        return _by_schema(mutating[0]) if mutating else None
    if name in _NO_DATA_WRITE:
        return None
    if name in _METADATA:
        return _metadata
    if name in _INDEXED_BY_DIM:
        return _indexed_by_dim
    if name in _BY_NAME:
        return _BY_NAME[name]
    if name in _OPERATOR_WRITERS:
        return _first_argument
    if name.endswith("_") and not name.endswith("__"):
        return _several_arguments(name) or _first_argument
    return None


def _several_arguments(name: str) -> Writes | None:
    """For an in-place operator that writes more than its first argument (fused optimizers), all of them."""
    for overload in overloads_of(getattr(torch.ops.aten, name, None)):
        written = [a.name for a in overload._schema.arguments if a.alias_info and a.alias_info.is_write]
        if len(written) > 1 and "out" not in overload._overloadname:
            return _by_schema(overload)
    return None


def overloads_of(operator: object) -> list[torch._ops.OpOverload[..., Any]]:
    """The overloads of an operator of `torch.ops`, or the one it is; empty for what is no such operator."""
    if isinstance(operator, torch._ops.OpOverload):
        return [cast("torch._ops.OpOverload[..., Any]", operator)]
    if isinstance(operator, torch._ops.OpOverloadPacket):
        packet = cast("torch._ops.OpOverloadPacket[..., Any]", operator)
        return [getattr(packet, name) for name in packet.overloads()]
    return []


def out_targets(out: object) -> list[Target]:
    """The targets of a call with `out=`."""
    return [Target(tensor) for tensor in _tensors(out)]


def with_inner(targets: list[Target]) -> list[Target]:
    """The targets, and for each tensor that wraps others, as its class has it, those too."""
    found = list(targets)
    for target in found:  # which grows: a wrapper may wrap wrappers
        if is_wrapper(target.tensor) and not target.metadata:
            shown = target.tensor if target.shown is None else target.shown
            found += [Target(tensor, shown=shown) for tensor in _inner_tensors(target.tensor)]
    return found


def _inner_tensors(wrapper: Any) -> list[Tensor]:
    attributes = cast("dict[str, object]", vars(wrapper))
    told = hasattr(wrapper, "__tensor_flatten__")  # torch's own protocol for it
    names = cast("list[str]", wrapper.__tensor_flatten__()[0]) if told else list(attributes)
    return [tensor for name in names if isinstance(tensor := attributes.get(name), Tensor)]


def region(target: Target) -> Tensor:
    """A view of exactly the elements written, where an index of slices and integers tells them."""
    if target.index is None or is_wrapper(target.tensor) or not _is_basic(target.index):
        return target.tensor
    return target.tensor[target.index]


def is_gathered(target: Target) -> bool:
    """Whether the written elements are picked by index tensors, so that no view describes them."""
    return target.index is not None and not is_wrapper(target.tensor) and not _is_basic(target.index)


def _is_basic(index: object) -> bool:
    parts = cast("tuple[object, ...]", index) if isinstance(index, tuple) else (index,)
    return all(part is None or part is Ellipsis or type(part) in (int, slice) for part in parts)


def _tensors(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in cast("list[object]", value):
            yield from _tensors(item)


def _argument(args: Args, kwargs: Kwargs, at: int, name: str) -> Any:
    """An argument given by position or by name; None where it was left out."""
    return args[at] if len(args) > at else kwargs.get(name)


def _first_argument(args: Args, kwargs: Kwargs) -> list[Target]:
    if args:
        return [Target(tensor) for tensor in _tensors(args[0])]
    # initialisers pass their tensor by keyword only
    written = kwargs.get("tensor", kwargs.get("input", kwargs.get("self")))
    return [Target(tensor) for tensor in _tensors(written)]


def _metadata(args: Args, kwargs: Kwargs) -> list[Target]:
    return [Target(target.tensor, metadata=True) for target in _first_argument(args, kwargs)]


def _setitem(args: Args, kwargs: Kwargs) -> list[Target]:
    return [Target(args[0], index=args[1])]


def _index_put(args: Args, kwargs: Kwargs) -> list[Target]:
    indices = _argument(args, kwargs, 1, "indices")
    index = tuple(cast("list[Any]", indices)) if isinstance(indices, (list, tuple)) else None
    return [Target(target.tensor, index=index) for target in _first_argument(args, kwargs)]


def _indexed_by_dim(args: Args, kwargs: Kwargs) -> list[Target]:
    dim, index = _argument(args, kwargs, 1, "dim"), _argument(args, kwargs, 2, "index")
    if not isinstance(dim, int) or not isinstance(index, Tensor) or args[0].dim() == 0:
        return [Target(args[0])]
    return [Target(args[0], index=(slice(None),) * (dim % args[0].dim()) + (index,))]


def _running_statistics(args: Args, kwargs: Kwargs) -> list[Target]:
    """Of a normalisation that computes its statistics now, and updates the running ones with them."""
    by_name = kwargs.get("training", kwargs.get("use_input_stats"))
    if not (args[5] if len(args) > 5 else by_name):
        return []
    found = (_argument(args, kwargs, 3, "running_mean"), _argument(args, kwargs, 4, "running_var"))
    return [Target(tensor) for tensor in found if isinstance(tensor, Tensor)]


def _positions(*positions: int) -> Writes:
    def targets(args: Args, kwargs: Kwargs) -> list[Target]:
        return [Target(tensor) for at in positions if at < len(args) for tensor in _tensors(args[at])]

    return targets


def _by_schema(overload: torch._ops.OpOverload[..., Any]) -> Writes | None:
    arguments = overload._schema.arguments
    written = [(at, a.name) for at, a in enumerate(arguments) if a.alias_info and a.alias_info.is_write]
    if not written:
        return None

    def targets(args: Args, kwargs: Kwargs) -> list[Target]:
        # fused optimizers mark the gradients as written, and write them only to unscale them
        unscaling = kwargs.get("grad_scale") is not None
        names = [(at, name) for at, name in written if name != "grads" or unscaling]
        values = [_argument(args, kwargs, at, name) for at, name in names]
        return [Target(tensor) for value in values for tensor in _tensors(value)]

    return targets


_BY_NAME: dict[str, Writes] = {
    "__setitem__": _setitem,
    "index_put_": _index_put,
    "_index_put_impl_": _index_put,
    "batch_norm": _running_statistics,
    "native_batch_norm": _running_statistics,
    "_native_batch_norm_legit": _running_statistics,
    "cudnn_batch_norm": _running_statistics,
    "miopen_batch_norm": _running_statistics,
    "instance_norm": _running_statistics,
    "batch_norm_update_stats": _positions(1, 2),
    "batch_norm_gather_stats": _positions(3, 4),
    "batch_norm_gather_stats_with_counts": _positions(3, 4),
    "fused_moving_avg_obs_fake_quant": _positions(3, 4, 5, 6),
    "_cummax_helper": _positions(1, 2),
    "_cummin_helper": _positions(1, 2),
    "rrelu_with_noise": _positions(1),
    "rrelu_with_noise_": _positions(0, 1),
    "embedding_renorm_": _positions(0),
}
