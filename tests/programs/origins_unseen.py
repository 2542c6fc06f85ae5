"""Programs in which something happens that no op tells of: scripts, storages, threads."""

from __future__ import annotations

import ctypes
import io
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import torch
from torch import Tensor, nn

from tests.programs.origin_program import (
    Model,
    Program,
    adding_to,
    elsewhere,
    scripted,
    scripted_copy,
    scripted_write,
)

PROGRAMS: list[Program] = []
program = adding_to(PROGRAMS)
POOL = ThreadPoolExecutor(1)
POOL.submit(int).result()  # its thread is there from now on


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
