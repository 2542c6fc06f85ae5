"""What a second forward needs to start where the first one did."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from torchlens._values.plain import tensors_in
from torchlens.validation.comparison import is_same


class BufferState:
    """The buffers of a model as they are now, to be given back to it."""

    def __init__(self, model: nn.Module | None) -> None:
        modules = [] if model is None else list(model.modules())
        self._held: list[tuple[nn.Module, dict[str, Tensor | None]]] = [
            (module, dict(module._buffers.items())) for module in modules
        ]
        tensors = [tensor for _, buffers in self._held for tensor in buffers.values() if tensor is not None]
        self._values = [
            (tensor, tensor.detach().clone()) for tensor in tensors if not nn.parameter.is_lazy(tensor)
        ]

    def restore(self) -> None:
        """Put the same tensors back, with the values they had."""
        for module, buffers in self._held:
            if not isinstance(module, torch.jit.ScriptModule):  # it hands out new tensor objects each time
                module._buffers.clear()
                module._buffers.update(buffers)
        with torch.no_grad():
            for tensor, value in self._values:
                if is_same(value, tensor):  # writing would age what a trace holds of it
                    continue
                if (tensor.shape, tensor.dtype) == (value.shape, value.dtype):
                    tensor.data.copy_(value)  # no version counter rises: a backward may still need it
                else:  # it was given another shape in place
                    tensor.data = value.clone()


def own_copy(inputs: Any) -> Any:
    """A copy of a model's inputs that a forward may change; what cannot be copied stays the same object."""
    memo: dict[int, Any] = {}
    for tensor in tensors_in(inputs):
        if not tensor.is_leaf:  # `deepcopy` refuses it
            memo[id(tensor)] = tensor.detach().clone().requires_grad_(tensor.requires_grad)
    try:
        return copy.deepcopy(inputs, memo)
    except (TypeError, RuntimeError, NotImplementedError, ValueError):
        return inputs
