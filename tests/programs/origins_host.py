"""Programs whose values leave torch for numpy or lists, and come back."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from tests.programs.origin_program import (
    Model,
    Program,
    adding_to,
)

PROGRAMS: list[Program] = []
program = adding_to(PROGRAMS)


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
