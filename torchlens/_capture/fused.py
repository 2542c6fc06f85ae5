"""Letting torch choose its fused attention kernels as it would without a capture.

`nn.MultiheadAttention`, `nn.TransformerEncoderLayer` and `nn.TransformerEncoder` leave their fused path when
`torch.overrides.has_torch_function` is true of their tensors, which any mode makes it; their output would
then differ in the last bits. Each call of such a module is therefore given a clone of its class's own
forward in which that question is answered as if the capture's mode were not there. Neither the module nor
torch is changed: the clone replaces one variable of the call that is running.

To step inside instead, the clone answers yes, as any mode makes torch do, and notes where no would have been
the answer: torch asks last, after every condition of its own but those on devices and gradients.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial
from types import CellType, FrameType, FunctionType, MethodType
from typing import Any, Final

import torch
from torch import Tensor, nn, overrides

from torchlens._capture.python_calls import ReadThrough, torch_wrote

KERNELS: Final = frozenset(("_native_multi_head_attention", "_transformer_encoder_layer_fwd"))
"""The torch functions that stand for what whole modules do otherwise."""

FUSING = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder)
_DIFFERS = "it may have run unfused during the capture, its output then differing in the last bits"


class FusedForwards:
    """The cloned forwards of one capture. With `expanded` they step inside, and tell it what that changes."""

    def __init__(self, expanded: Callable[[str], object] | None = None) -> None:
        self._clones: dict[type[nn.Module], FunctionType | None] = {}
        # a method would make a cycle that waits for the collector
        answer = _is_overridden if expanded is None else partial(_is_overridden_or_expanded, expanded)
        asking = ReadThrough(overrides, {"has_torch_function": answer})
        self._torch = ReadThrough(torch, {"overrides": asking})

    def prepare(self, module: nn.Module, inner_frame: FrameType) -> bool:
        """Let the running call of `module` choose its kernel; False: nothing was changed.

        `inner_frame` is the frame that called the global forward pre-hook, on the capture's own thread.
        """
        kind = type(module)
        try:
            clone = self._clones[kind]
        except KeyError:
            clone = self._clones[kind] = self._build(kind)
        if clone is None:
            return False
        cell = forward_cell(inner_frame)
        # An instance may have a forward of its own, and jit tracing calls another method.
        if cell is None or cell.cell_contents != MethodType(kind.forward, module):
            return False
        cell.cell_contents = MethodType(clone, module)
        return True

    def could_not_keep(self, module: nn.Module) -> str | None:
        """After `prepare` gave False: a sentence on what that may change, or None if it changes nothing."""
        kind = type(module)
        if not issubclass(kind, FUSING) or not _may_fuse(module):
            return None
        if "forward" in vars(module) or not _has_torchs_forward(kind):
            return f"{kind.__name__} has a forward of its own; if that calls torch's, {_DIFFERS}."
        return (
            f"The call of {kind.__name__} could not be redirected in torch {torch.__version__}; {_DIFFERS}."
        )

    def bypassed(self, frame: FrameType) -> str | None:
        """A sentence if `frame` runs one of the three forwards without the clone, so without its fused path.

        That is a forward called directly (`layer.forward(x)`, `super().forward(x)`): no hook fires for it.
        """
        for base in FUSING:
            own = base.forward
            if frame.f_code is own.__code__ and frame.f_globals is own.__globals__:
                module = frame.f_locals.get("self")
                if isinstance(module, nn.Module) and _may_fuse(module):
                    return f"{base.__name__}.forward was called directly; {_DIFFERS}."
        return None

    def _build(self, kind: type[nn.Module]) -> FunctionType | None:
        own = kind.forward
        if not _has_torchs_forward(kind) or type(own) is not FunctionType:
            return None
        clone = FunctionType(own.__code__, {**own.__globals__, "torch": self._torch}, own.__name__)
        clone.__defaults__, clone.__kwdefaults__ = own.__defaults__, own.__kwdefaults__
        clone.__qualname__ = own.__qualname__
        return clone


def _has_torchs_forward(kind: type[nn.Module]) -> bool:
    own = kind.forward
    return type(own) is FunctionType and torch_wrote(own) and own in [base.forward for base in FUSING]


def _is_overridden(relevant: Iterable[Any]) -> bool:
    """`has_torch_function` as it would answer if the capture's mode were not on."""
    if not overrides.has_torch_function(relevant):
        return False
    if torch._C._len_torch_function_stack() != 1:
        return True
    # Where a single mode is on, it is the capture's: for as long as that one is off, its handler is calling
    # torch, and torch takes every other mode off before it runs what could hold this call.
    mode = torch._C._pop_torch_function_stack()
    try:
        return overrides.has_torch_function(relevant)
    finally:
        torch._C._push_on_torch_function_stack(mode)


def _is_overridden_or_expanded(expanded: Callable[[str], object], relevant: Iterable[Any]) -> bool:
    """True, as under any mode, but for nested tensors; `expanded` is told what that changes."""
    tensors = tuple(relevant)
    if _is_overridden(tensors):
        return True
    if any(tensor.is_nested for tensor in tensors):
        return False  # what is written in Python raises for nested tensors
    if _lets_fuse(tensors) and (note := _expansion(sys._getframe(1))) is not None:
        expanded(note)
    return True


def _lets_fuse(tensors: tuple[Tensor, ...]) -> bool:
    """Torch's conditions on the tensors themselves, which it tests after it has asked for overrides."""
    if not torch.backends.mha.get_fastpath_enabled() or torch.compiler.is_compiling():
        return False
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return False
    return all(tensor.device.type in _FUSING_DEVICES for tensor in tensors)


_FUSING_DEVICES: Final = ("cpu", "cuda", "xpu", torch._C._get_privateuse1_backend_name())


def _expansion(frame: FrameType) -> str | None:
    """What the forward that runs in `frame` would have done otherwise without the capture; None: nothing."""
    module = frame.f_locals["self"]
    name = type(module).__name__
    if isinstance(module, nn.TransformerEncoder):
        if frame.f_locals["src_key_padding_mask"] is None:
            return None
        return (
            f"{name} did not pack its padded input (fused='expand'); at padded positions its output is "
            "computed instead of 0."
        )
    if isinstance(module, nn.MultiheadAttention) and _within_encoder_layer(frame):
        return None  # the layer's kernel would have stood for both
    mixed = " and, under autocast, in its type" if torch._C._is_any_autocast_enabled() else ""
    return (
        f"{name} ran what is written in Python where a fused kernel would have run (fused='expand'); its "
        f"output may differ in the last bits{mixed}."
    )


def _within_encoder_layer(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code is nn.TransformerEncoderLayer.forward.__code__:
            return True
        frame = frame.f_back
    return False


def forward_cell(inner_frame: FrameType) -> CellType | None:
    """The variable of a running `Module._call_impl` that holds what it calls as forward."""
    code, outer = inner_frame.f_code, inner_frame.f_back
    if outer is None or "forward_call" not in code.co_freevars:
        return None
    inner = outer.f_locals.get(code.co_name)
    if type(inner) is not FunctionType or inner.__code__ is not code or inner.__closure__ is None:
        return None
    return inner.__closure__[code.co_freevars.index("forward_call")]


def _may_fuse(module: nn.Module) -> bool:
    """Whether `module` could take a fused kernel now, for some input."""
    if module.training or torch.is_autocast_enabled() or not torch.backends.mha.get_fastpath_enabled():
        return False
    if torch.is_grad_enabled() and any(parameter.requires_grad for parameter in module.parameters()):
        return False
    for inner in module.modules():
        if isinstance(inner, nn.MultiheadAttention) and inner.batch_first and inner.num_heads % 2 == 0:
            return True
    return False
