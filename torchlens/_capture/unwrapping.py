"""What stands around a model without being part of it, and the module behind a callable."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import MethodType
from typing import Any, cast

from torch import nn

from torchlens._capture.compiled import is_compiled_module

_CALLS_ITS_MODULE = ("forward", nn.Module.__call__.__name__)


def unwrapped(model: Callable[..., Any]) -> Callable[..., Any]:
    """The model without what only decides how it is run: `torch.compile` and `nn.DataParallel`.

    They are taken off however often they are nested, also from under a `partial` and from a bound `forward`.
    `DistributedDataParallel` stays: its forward also brings buffers into step with the other ranks. So do
    wrappers inside a model, which are modules like others there.

    >>> model = nn.Linear(2, 2)
    >>> unwrapped(nn.DataParallel(model)) is model
    True
    """
    if type(model) is partial:
        bound = cast("partial[Any]", model)
        inner = unwrapped(bound.func)
        return model if inner is bound.func else partial(inner, *bound.args, **bound.keywords)
    module: object = model
    if isinstance(model, MethodType) and model.__name__ in _CALLS_ITS_MODULE:
        module = model.__self__
    inner = _inside(module)
    return model if inner is None else unwrapped(inner)


def root_of(model: object) -> nn.Module | None:
    """The module behind a callable: itself, a bound method's, a partial's."""
    while isinstance(model, partial):
        model = cast("partial[Any]", model).func
    owner = model.__self__ if isinstance(model, MethodType) else model
    return owner if isinstance(owner, nn.Module) else None


def _inside(module: object) -> nn.Module | None:
    """The module that a wrapper calls; None for what is no wrapper."""
    kind = type(module)
    if issubclass(kind, nn.DataParallel):
        inner = cast("nn.DataParallel[nn.Module]", module).module
    elif is_compiled_module(module):
        inner = cast("nn.Module", module)._orig_mod
    else:
        return None
    assert isinstance(inner, nn.Module)
    return inner
