"""What torch itself keeps of a tensor's history: its count of in-place changes, and its place in autograd."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge


def version_of(tensor: Tensor) -> int | None:
    """Torch's count of in-place changes; None for what has no such count."""
    if type(tensor) not in _PLAIN:
        with torch._C.DisableTorchFunction():  # a subclass must not see our reads
            return _version_of(tensor)
    return _version_of(tensor)


_PLAIN = (Tensor, torch.nn.Parameter)


def _version_of(tensor: Tensor) -> int | None:
    try:
        return tensor._version
    except (RuntimeError, ValueError):  # inference tensors; parameters that a lazy module will fill
        return None


def any_moved(noted: Iterable[tuple[Any, Any]]) -> bool:
    """Whether a tensor, or one of a tuple, has another version counter than noted beside it."""
    for out, version in noted:
        if version is not None:
            try:  # asked here for most: the calls of `_versions` take twice as long as all the rest
                now = out._version if type(out) is Tensor else _versions(out)
            except RuntimeError:  # it counts nothing any more
                return True
            if now != version:
                return True
    return False


def _versions(out: Any) -> Any:
    return tuple(map(version_of, cast("tuple[Tensor, ...]", out))) if type(out) is tuple else version_of(out)


def gradient_edge_of(tensor: Tensor) -> GradientEdge | None:
    """Where the tensor enters the autograd graph as it is now; None if it needs no gradient."""
    if not tensor.requires_grad:
        return None
    try:
        with torch.enable_grad():  # for a leaf torch takes a view to find its node
            return get_gradient_edge(tensor)
    except (AssertionError, RuntimeError):
        # a view made under `no_grad` says that it needs a gradient but has no node; once its base was
        # written with gradients on, even asking is an error
        return None
