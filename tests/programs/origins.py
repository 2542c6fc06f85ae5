"""Programs that get their tensors from everywhere, each with the reasons for which its trace is unverified.

A program is made anew for each run and called with two tensors of three numbers. Where no reason stands, the
trace must be verified, and its graph must show every input that the output depends on.
"""

from __future__ import annotations

import ctypes
import dataclasses
import io
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

Model = Callable[[Tensor, Tensor], Any]


@dataclass
class Program:
    name: str
    make: Callable[[], Model]
    reasons: tuple[str, ...]


PROGRAMS: list[Program] = []


def program(*reasons: str) -> Callable[[Callable[[], Model]], Callable[[], Model]]:
    """Adds what makes a model to the table; `reasons` are those of its trace, in order."""

    def add(make: Callable[[], Model]) -> Callable[[], Model]:
        PROGRAMS.append(Program(make.__name__, make, reasons))
        return make

    return add


def floats(start: float) -> Tensor:
    return torch.tensor([start, start + 1, start + 2], dtype=torch.float32)


def elsewhere(work: Callable[[], Any]) -> Any:
    """What `work` returns, run on a thread of its own."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


SHARED = floats(1)
TABLE = {"deep": [SimpleNamespace(scale=floats(2))]}
ARRAY = np.ones(3, dtype=np.float32)
POOL = ThreadPoolExecutor(1)
POOL.submit(int).result()  # its thread is there from now on


@torch.jit.script
def scripted(x: Tensor) -> Tensor:
    return torch.sin(x) + 1


@torch.jit.script
def scripted_copy(kept: Tensor, x: Tensor) -> Tensor:
    return kept.copy_(x)


@torch.jit.script
def scripted_write(x: Tensor) -> Tensor:
    return x.mul_(3)


# ---- seen, or there before -----------------------------------------------------------------------


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
    @dataclass(slots=True)
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


# ---- through the host ----------------------------------------------------------------------------


@program()
def to_numpy_and_back() -> Model:
    return lambda x, y: torch.from_numpy((x * 2).detach().numpy()) + y


@program()
def part_of_an_array_and_back() -> Model:
    return lambda x, y: torch.from_numpy((x * 2).detach().numpy()[1:]) + y[1:]


@program()
def as_tensor_of_an_array() -> Model:
    return lambda x, y: torch.as_tensor((x * 2).detach().numpy()) + y


@program()
def through_dlpack() -> Model:
    return lambda x, y: torch.from_dlpack((x * 2).detach()) + y


@program()
def through_old_dlpack() -> Model:
    return lambda x, y: torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x.detach())) + y


@program()
def shared_with_numpy_and_written_in_torch() -> Model:
    def model(x: Tensor, y: Tensor) -> Tensor:
        z = x.detach() * 1
        twin = torch.from_numpy(z.numpy())
        twin.mul_(y.detach())
        return z + 1

    return model


@program()
def shared_with_numpy_and_written_before_use() -> Model:
    def model(x: Tensor, y: Tensor) -> Tensor:
        z = x.detach() * 1
        twin = torch.from_numpy(z.numpy())
        z[:2] = y.detach()[:2]
        return twin + 1

    return model


@program("host_round_trip")
def computed_in_numpy() -> Model:
    return lambda x, y: torch.from_numpy(np.sin(x.detach().numpy())) + y


@program("host_round_trip")
def copied_by_numpy() -> Model:
    return lambda x, y: torch.tensor(x.detach().numpy() + 1) + y


@program()
def nothing_made_after_a_list() -> Model:
    """A tensor without elements carries no value, whatever left before."""

    def model(x: Tensor, y: Tensor) -> Tensor:
        first, second = x.split([1, len(x.tolist()) - 1])
        return torch.cat([torch.tensor([]), second, first]) + y

    return model


@program("host_round_trip")
def through_a_list() -> Model:
    return lambda x, y: torch.tensor([value * 2 for value in x.tolist()]) + y


@program("host_round_trip")
def through_a_list_and_new_tensor() -> Model:
    return lambda x, y: y.new_tensor(x.tolist()) + y


@program()
def a_universal_function_of_numpy() -> Model:
    return lambda x, y: np.sin(x.detach()) + y


@program("host_round_trip")
def a_universal_function_of_two() -> Model:
    return lambda x, y: np.add(x.detach().numpy(), y.detach())


@program("write_through_numpy")
def written_through_numpy() -> Model:
    def model(x: Tensor, y: Tensor) -> Tensor:
        z = x.detach() * 1
        z.numpy()[0] = float(y[0])
        return z + 1

    return model


@program("write_through_numpy")
def sorted_in_numpy() -> Model:
    def model(x: Tensor, y: Tensor) -> Tensor:
        z = y.detach().flip(0)
        np.asarray(z).sort()
        return z + x

    return model


@program()
def read_by_numpy_and_written_in_torch() -> Model:
    def model(x: Tensor, y: Tensor) -> Tensor:
        z = x.detach() * 1
        z.numpy().sum()
        z[0] = y[0]
        z.numpy().sum()
        z.add_(1)
        return z + 1

    return model


@program("host_round_trip")
def a_numpy_buffer_that_is_filled_before_its_tensor_is_used() -> Model:
    buffer = np.zeros(3, dtype=np.float32)
    tensor = torch.from_numpy(buffer)

    def model(x: Tensor, y: Tensor) -> Tensor:
        buffer[:] = np.sin(x.detach().numpy())
        return tensor + y

    return model


@program("write_through_numpy")
def a_numpy_buffer_that_is_filled_after_its_tensor_was_used() -> Model:
    buffer = np.zeros(3, dtype=np.float32)
    tensor = torch.from_numpy(buffer)

    def model(x: Tensor, y: Tensor) -> Tensor:
        first = tensor + y
        buffer[:] = np.sin(x.detach().numpy())
        return first * tensor

    return model


@program("write_through_numpy")
def a_registered_buffer_over_an_array_that_is_filled() -> Model:
    class Fills(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.array = np.zeros(3, dtype=np.float32)
            self.register_buffer("held", torch.from_numpy(self.array))

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            self.array[:] = x.detach().numpy()
            return self.held + y

    return Fills()


@program()
def constants_over_arrays_and_a_value_that_left() -> Model:
    class Holds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("held", torch.from_numpy(np.ones(3, dtype=np.float32)))

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return self.held * y if x.detach().numpy().sum() > 0 else y

    return Holds()


@program("unexplained_write")
def written_through_the_storage() -> Model:
    def model(x: Tensor, y: Tensor) -> Tensor:
        z = x.detach() * 1
        z.untyped_storage().fill_(0)
        return z + y

    return model


# ---- not seen ------------------------------------------------------------------------------------


@program("unknown_origin")
def a_scripted_function() -> Model:
    def model(x: Tensor, y: Tensor) -> Tensor:
        z = scripted(x)
        return z * y

    return model


@program("unknown_origin")
def a_scripted_function_kept_in_an_attribute() -> Model:
    class Keeps(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            self.kept = scripted(x)
            return self.kept * y

    return Keeps()


@program("unknown_origin")
def a_scripted_function_as_new_buffer() -> Model:
    class Keeps(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            self.register_buffer("kept", scripted(x))
            return self.kept * y

    return Keeps()


@program("unknown_origin")
def a_scripted_function_as_parameter() -> Model:
    class Keeps(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            self.kept = nn.Parameter(scripted(x).detach())
            return self.kept * y

    return Keeps()


@program("unknown_origin")
def a_scripted_function_in_a_closure() -> Model:
    def model(x: Tensor, y: Tensor) -> Tensor:
        z = scripted(x)
        return (lambda: z * y)()

    return model


@program("unknown_origin")
def a_scripted_function_as_argument_of_a_module() -> Model:
    layer = nn.Linear(3, 3)
    return lambda x, y: layer(scripted(x)) + y


@program("unknown_origin")
def a_scripted_function_as_result() -> Model:
    return lambda x, y: scripted(x)


@program("unexplained_write")
def written_by_a_scripted_function() -> Model:
    def model(x: Tensor, y: Tensor) -> Tensor:
        z = x * 1
        scripted_write(z)
        return z + y

    return model


@program("unexplained_write")
def an_unseen_write_beside_one_through_data() -> Model:
    """`.data` has a version counter of its own: its writes explain none of the others."""

    def model(x: Tensor, y: Tensor) -> Tensor:
        z = x * 1
        scripted_write(z)
        z.data.mul_(y)
        return z + 1

    return model


@program()
def a_view_of_data_written() -> Model:
    def model(x: Tensor, y: Tensor) -> Tensor:
        z = x * 1
        z.data[1:].detach().mul_(y[1:])
        z.mul_(2)
        z.data.view(3).add_(y)
        return z + z.data

    return model


@program("unknown_origin")
def legacy_constructors() -> Model:
    return lambda x, y: x + torch.Tensor([1.0, 2.0, 3.0]) + torch.FloatTensor([1.0]) + y


@program("unexplained_write")
def half_of_a_complex_number_set() -> Model:
    def model(x: Tensor, y: Tensor) -> Tensor:
        z = torch.complex(x, x)
        z.real = y * 3
        return torch.view_as_real(z)

    return model


@program("unexplained_write")
def another_storage_set() -> Model:
    def model(x: Tensor, y: Tensor) -> Tensor:
        z = x.detach() * 1
        z.set_(y.detach() * 2)
        return z + 1

    return model


@program("unexplained_write")
def pickled_and_back() -> Model:
    return lambda x, y: pickle.loads(pickle.dumps(x.detach())) + y


@program("unexplained_write")
def buffer_written_by_a_script() -> Model:
    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("kept", torch.zeros(3))

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            scripted_copy(self.kept, x)
            return self.kept + y

    return Writes()


@program("unexplained_write")
def parameter_written_by_a_script() -> Model:
    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kept = nn.Parameter(torch.zeros(3))

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            with torch.no_grad():
                scripted_copy(self.kept, x)
            return self.kept + y

    return Writes()


@program("unexplained_write")
def half_a_write_that_raised() -> Model:
    def model(x: Tensor, y: Tensor) -> Tensor:
        z = torch.zeros(3)
        with suppress(RuntimeError):
            torch._foreach_add_([z, torch.zeros(2)], [x, torch.zeros(5)])
        return z * y

    return model


@program("host_round_trip")
def bytes_of_a_storage() -> Model:
    def model(x: Tensor, y: Tensor) -> Tensor:
        octets = bytearray(bytes(x.detach().untyped_storage()))
        return torch.frombuffer(octets, dtype=torch.float32)[: len(y)] * y

    return model


@program("host_round_trip", "unexplained_write")
def saved_and_loaded() -> Model:
    def model(x: Tensor, y: Tensor) -> Tensor:
        file = io.BytesIO()
        torch.save(x.detach(), file)
        return torch.load(io.BytesIO(file.getvalue())) + y

    return model


@program("unexplained_write")
def parameters_swapped() -> Model:
    layer = nn.Linear(3, 3)

    @torch.no_grad()
    def model(x: Tensor, y: Tensor) -> Tensor:
        first = layer(x)
        torch.utils.swap_tensors(layer.bias, nn.Parameter(y.detach() * 2))
        return first + layer(x)

    return model


# ---- threads -------------------------------------------------------------------------------------


@program("owner_thread_tripwire_changed", "unknown_origin")
def ops_on_a_thread() -> Model:
    return lambda x, y: elsewhere(lambda: x * 2) + y


@program("owner_thread_tripwire_changed", "tensor_from_another_thread")
def a_module_on_a_thread() -> Model:
    layer = nn.Linear(3, 3)
    return lambda x, y: elsewhere(lambda: layer(x)) + y


@program("owner_thread_tripwire_changed")
def a_thread_that_gives_nothing() -> Model:
    return lambda x, y: x * y + (elsewhere(lambda: None) or 0)


@program("owner_thread_tripwire_changed")
def a_thread_that_writes_through_data() -> Model:
    def model(x: Tensor, y: Tensor) -> Tensor:
        z = x.detach() * 1
        elsewhere(lambda: z.data.mul_(y.detach()))
        return z + 1

    return model


@program("tensor_from_another_thread")
def a_module_on_a_pool() -> Model:
    layer = nn.Linear(3, 3)
    return lambda x, y: POOL.submit(lambda: layer(x)).result() + y


@program("tensor_from_another_thread")
def part_of_what_a_module_on_a_pool_gave() -> Model:
    layer = nn.Linear(3, 3)
    return lambda x, y: POOL.submit(lambda: layer(x)[:2]).result() + y[:2]


@program("unknown_origin")
def ops_on_a_pool() -> Model:
    return lambda x, y: POOL.submit(lambda: x * 2).result() + y


@program("unexplained_write")
def a_write_on_a_pool() -> Model:
    def model(x: Tensor, y: Tensor) -> Tensor:
        z = x.detach() * 1
        POOL.submit(lambda: z.mul_(y.detach())).result()
        return z + 1

    return model


CANNOT_BE_SEEN: list[Callable[[], Model]] = []
"""Programs of which nothing tells; `docs/limits.md` lists them."""


def unseen(make: Callable[[], Model]) -> Callable[[], Model]:
    CANNOT_BE_SEEN.append(make)
    return make


@unseen
def tensors_swapped() -> Model:
    def model(x: Tensor, y: Tensor) -> Tensor:
        one, other = x.detach() * 1, y.detach() * 2
        torch.utils.swap_tensors(one, other)
        return one + 1

    return model


@unseen
def written_at_an_address() -> Model:
    def model(x: Tensor, y: Tensor) -> Tensor:
        z = x.detach() * 1
        ctypes.c_float.from_address(z.data_ptr()).value = float(y[0])
        return z + 1

    return model
