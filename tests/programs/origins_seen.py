"""Programs whose tensors were all seen, or were there before."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.programs.origin_program import (
    Model,
    Program,
    adding_to,
    floats,
)

PROGRAMS: list[Program] = []
program = adding_to(PROGRAMS)
SHARED = floats(1)
TABLE = {"deep": [SimpleNamespace(scale=floats(2))]}
ARRAY = np.ones(3, dtype=np.float32)
POOL = ThreadPoolExecutor(1)
POOL.submit(int).result()  # its thread is there from now on


@program()
def only_ops() -> Model:
    return lambda x, y: torch.tanh(x) * y


@program()
def a_global() -> Model:
    return lambda x, y: x * SHARED + y * TABLE["deep"][0].scale


@program()
def a_closure() -> Model:
    held = floats(5)
    return lambda x, y: x * held


@program()
def a_default() -> Model:
    held = floats(2)

    def model(x: Tensor, y: Tensor, scale: Tensor = held) -> Tensor:
        return x * scale

    return model


@program()
def parameters_and_buffers() -> Model:
    linear, norm = nn.Linear(3, 3), nn.BatchNorm1d(3).eval()
    return lambda x, y: norm(linear(x)[None]) + y


@program()
def attributes_of_a_module() -> Model:
    class Holds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = floats(1)
            self.cache = {"k": [floats(2)], 0: (floats(3),)}

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return x * self.scale + self.cache["k"][0] * self.cache[0][0]

    return Holds()


@program()
def an_object_with_slots() -> Model:
    @dataclasses.dataclass(slots=True)
    class Slotted:
        scale: Tensor

    held = Slotted(floats(4))
    return lambda x, y: x * held.scale


@program()
def something_old_that_only_a_local_names() -> Model:
    weights = iter([floats(1), floats(2)] * 10)

    def model(x: Tensor, y: Tensor) -> Tensor:
        weight = next(weights)
        return x * weight

    return model


@program()
def a_parameter_of_no_module() -> Model:
    free = nn.Parameter(floats(1))
    return lambda x, y: x * free


@program()
def constants_of_torch() -> Model:
    return lambda x, y: x * torch.tensor([1.0, 2.0, 3.0]) + torch.arange(3) + torch.zeros(3)


@program()
def constants_of_numpy() -> Model:
    return lambda x, y: x * torch.from_numpy(np.arange(3.0)) + torch.as_tensor(np.ones(3))


@program()
def a_constant_of_a_global_array() -> Model:
    return lambda x, y: x * torch.from_numpy(ARRAY)


@program()
def a_constant_of_bytes() -> Model:
    return lambda x, y: x * torch.frombuffer(bytearray(ARRAY.tobytes()), dtype=torch.float32)


@program()
def a_module_made_inside() -> Model:
    def model(x: Tensor, y: Tensor) -> Tensor:
        layer = nn.Linear(3, 3)
        with torch.no_grad():
            layer.weight.fill_(0.5)
            layer.bias.zero_()
        return layer(x)

    return model


@program()
def a_parameter_made_of_an_input() -> Model:
    class Hyper(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            self.weight = nn.Parameter(y * 2)
            return F.relu(x) * self.weight

    return Hyper()


@program()
def a_buffer_that_is_counted() -> Model:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(3))

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            self.count += y
            return x * self.count

    return Counts()


@program()
def a_buffer_assigned_by_the_parent() -> Model:
    class Child(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("held", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.held

    class Parent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.child = Child()

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            self.child.held = y * 2
            return self.child(x) + self.child.held

    return Parent()


@program()
def a_cache_that_an_attribute_keeps() -> Model:
    class Caches(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            self.cache = SimpleNamespace(keys=[y * 2])
            return x * self.cache.keys[0]

    return Caches()


@program()
def lists_that_grow() -> Model:
    def model(x: Tensor, y: Tensor) -> Tensor:
        kept: list[Tensor] = []
        for _ in range(3):
            kept.append(x * y)
            x = torch.stack(kept).sum(0)
        return x

    return model


@program()
def checkpointed() -> Model:
    layer = nn.Linear(3, 3)
    return lambda x, y: checkpoint(lambda z: layer(z) * y, x, use_reentrant=False)


@program()
def checkpointed_reentrant() -> Model:
    layer = nn.Linear(3, 3)
    return lambda x, y: checkpoint(lambda z: layer(z) * y, x.requires_grad_(), use_reentrant=True)


@program()
def a_vmapped_function() -> Model:
    return lambda x, y: torch.func.vmap(lambda a: a * y)(x[None])[0]


@program()
def a_gradient_as_value() -> Model:
    return lambda x, y: torch.func.grad(lambda a: (a * y).sum() ** 2)(x)


@program()
def functional_weights() -> Model:
    layer = nn.Linear(3, 3, bias=False)
    return lambda x, y: torch.func.functional_call(layer, {"weight": torch.outer(y, y)}, (x,))


@program()
def a_custom_function() -> Model:
    class Doubles(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * 2

    return lambda x, y: Doubles.apply(x.requires_grad_()) * y


@program()
def a_scripted_module() -> Model:
    inner = torch.jit.script(nn.Sequential(nn.Linear(3, 3), nn.Tanh()))
    return lambda x, y: inner(x) * y


@program()
def weight_norm() -> Model:
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 3))
    return lambda x, y: layer(x) * y


@program()
def a_lazy_layer() -> Model:
    layer = nn.LazyLinear(3)
    return lambda x, y: layer(x) * 0 + y


@program()
def a_recurrent_layer() -> Model:
    layer = nn.LSTM(3, 3)
    return lambda x, y: layer(x[None])[0] * y


@program()
def in_inference_mode() -> Model:
    @torch.inference_mode()
    def model(x: Tensor, y: Tensor) -> Tensor:
        z = x * y
        z.add_(1)
        return z * SHARED

    return model


@program()
def deep_copies() -> Model:
    import copy

    return lambda x, y: copy.deepcopy(x.detach() * y) + 1


@program()
def numbers_that_steer() -> Model:
    return lambda x, y: x * 2 if bool((y > 0).any()) and y.sum().item() > -100 else x


@program()
def shapes_as_numbers() -> Model:
    return lambda x, y: x.view(*y.shape).expand(2, len(y)) * y.numel()


@program()
def tensors_made_of_tensors() -> Model:
    return lambda x, y: torch.tensor([x.sum(), y.sum()]) + torch.as_tensor(x)[:2]


@program()
def new_tensors_like_others() -> Model:
    return lambda x, y: x.new_zeros(3) + x.new_tensor([1.0, 2.0, 3.0]) + torch.full_like(y, 2) * x


@program()
def a_dataclass_of_tensors() -> Model:
    @dataclasses.dataclass
    class Pair:
        one: Tensor
        other: Tensor

    def add(pair: Pair) -> Tensor:
        return pair.one + pair.other

    return lambda x, y: add(Pair(x * 2, y))


@program()
def a_generator() -> Model:
    def steps(x: Tensor, y: Tensor) -> Any:
        for _ in range(3):
            x = x * y
            yield x

    return lambda x, y: sum(steps(x, y))


@program()
def a_worker_of_others() -> Model:
    def model(x: Tensor, y: Tensor) -> Tensor:
        other = POOL.submit(lambda: nn.Linear(3, 3)(torch.ones(3)).sum())
        result = x * y
        other.result()
        return result

    return model


@program()
def written_through_data() -> Model:
    def model(x: Tensor, y: Tensor) -> Tensor:
        z = x * 1
        z.data.mul_(y)
        z.data[1] = 5
        return z + 1

    return model


@program()
def data_replaced() -> Model:
    def model(x: Tensor, y: Tensor) -> Tensor:
        z = x * 1
        z.data = y * 2
        return z + 1

    return model


@program()
def detached_and_written() -> Model:
    def model(x: Tensor, y: Tensor) -> Tensor:
        z = x * 1
        z.detach()[1:].copy_(y[1:])
        return z * 2

    return model


@program()
def written_by_a_legacy_method() -> Model:
    def model(x: Tensor, y: Tensor) -> Tensor:
        z = x.detach() * 1
        z.apply_(lambda value: value * 2)
        z.map_(y.detach(), lambda one, other: one + other)
        return z

    return model
