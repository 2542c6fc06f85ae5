"""Random programs that mix what is seen with what is not: a verified trace shows every true dependency."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, TypeAlias

import networkx as nx
import numpy as np
import torch
from hypothesis import given, note, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import torchlens as tl
from tests.programs.last_writers import equal_bits
from tests.programs.origin_program import elsewhere, scripted, scripted_write

Step: TypeAlias = tuple[str, int, int]
"""Name of a step, and which of the tensors there are it takes."""

POOL = ThreadPoolExecutor(1)
POOL.submit(int).result()


class Held:
    """What a step may keep something in for a later one."""

    def __init__(self) -> None:
        self.array: Any = None
        self.numbers: Any = None
        self.box = SimpleNamespace(tensors=[])
        self.layer = nn.Linear(3, 3, bias=False)
        with torch.no_grad():
            self.layer.weight.copy_(torch.arange(9.0).view(3, 3) / 9 - 0.3)


def keep_array(held: Held, a: Tensor, b: Tensor) -> Tensor:
    held.array = a.numpy()
    return a + b


def keep_numbers(held: Held, a: Tensor, b: Tensor) -> Tensor:
    held.numbers = a.tolist()
    return a * b


def write_array(held: Held, a: Tensor, b: Tensor) -> Tensor:
    if held.array is not None:
        held.array[0] = 3
    return a - b


def of_array(held: Held, a: Tensor, b: Tensor) -> Tensor:
    return b + (1 if held.array is None else torch.from_numpy(held.array))


def of_array_in_part(held: Held, a: Tensor, b: Tensor) -> Tensor:
    return b + (1 if held.array is None else torch.from_numpy(held.array[1:]).sum())


def of_numbers(held: Held, a: Tensor, b: Tensor) -> Tensor:
    return b + (1 if held.numbers is None else torch.tensor(held.numbers))


def put_in_box(held: Held, a: Tensor, b: Tensor) -> Tensor:
    held.box.tensors.append(scripted(a))
    return b + 1


def take_from_box(held: Held, a: Tensor, b: Tensor) -> Tensor:
    return b * (held.box.tensors[-1] if held.box.tensors else 2)


def write_part(held: Held, a: Tensor, b: Tensor) -> Tensor:
    a[1:] = b[:2] * 2
    return a


def write_through_data(held: Held, a: Tensor, b: Tensor) -> Tensor:
    a.data.mul_(b)
    return a + 0


def swap_data(held: Held, a: Tensor, b: Tensor) -> Tensor:
    a.data = b * 2
    return a + 0


def set_storage(held: Held, a: Tensor, b: Tensor) -> Tensor:
    a.set_(b * 3)
    return a + 0


SEEN: dict[str, Callable[[Held, Tensor, Tensor], Tensor]] = {
    "add": lambda held, a, b: a + b,
    "sine": lambda held, a, b: torch.sin(a) * b[0],
    "view": lambda held, a, b: a.flip(0)[:].view(3),
    "copy": lambda held, a, b: a.clone(),
    "layer": lambda held, a, b: held.layer(a).detach(),
    "add in place": lambda held, a, b: a.add_(b),
    "part in place": write_part,
    "through data": write_through_data,
    "data replaced": swap_data,
    "constant": lambda held, a, b: a * torch.from_numpy(np.arange(3, dtype=np.float32)),
    "mapped": lambda held, a, b: torch.func.vmap(lambda row: row * b.sum())(a),
}
UNSEEN: dict[str, Callable[[Held, Tensor, Tensor], Tensor]] = {
    "scripted": lambda held, a, b: scripted(a) + b,
    "scripted in place": lambda held, a, b: scripted_write(a) + b,
    "legacy": lambda held, a, b: a + torch.Tensor([1.0, 2.0, 3.0]),
    "legacy of numbers": lambda held, a, b: b + torch.Tensor(a.tolist()),
    "numpy": lambda held, a, b: torch.from_numpy(a.numpy()) * b,
    "numpy computes": lambda held, a, b: torch.from_numpy(np.sin(a.numpy())) * b,
    "universal function": lambda held, a, b: np.sin(a) + b,
    "memory protocol": lambda held, a, b: torch.from_dlpack(a) * b,
    "keep array": keep_array,
    "write array": write_array,
    "of array": of_array,
    "part of array": of_array_in_part,
    "keep numbers": keep_numbers,
    "of numbers": of_numbers,
    "into a box": put_in_box,
    "out of a box": take_from_box,
    "another thread": lambda held, a, b: elsewhere(lambda: a * 2) + b,
    "module on a pool": lambda held, a, b: POOL.submit(lambda: held.layer(a).detach()).result() + b,
    "ops on a pool": lambda held, a, b: POOL.submit(lambda: a * 2).result() + b,
    "write on a pool": lambda held, a, b: [POOL.submit(lambda: a.mul_(2)).result(), a + b][1],
    "storage set": set_storage,
}
STEPS = SEEN | UNSEEN


def program(steps: list[Step]) -> Callable[[Tensor, Tensor], tuple[Tensor, ...]]:
    def run(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        held, tensors = Held(), [x * 1, y * 1]
        for name, one, other in steps:
            made = STEPS[name](held, tensors[one % len(tensors)], tensors[other % len(tensors)])
            tensors.append(made)
        return tuple(tensor + 0 for tensor in tensors[2:])

    return run


def inputs() -> list[Tensor]:
    return [torch.tensor([0.5, -1.25, 2.0]), torch.tensor([1.5, 0.75, -0.5])]


def true_dependencies(steps: list[Step], expected: tuple[Tensor, ...]) -> set[tuple[int, int]]:
    found: set[tuple[int, int]] = set()
    for at in range(2):
        changed = inputs()
        changed[at] = changed[at] * 1.5 + 0.125
        outputs = program(steps)(*changed)
        found |= {(at, k) for k, (a, b) in enumerate(zip(outputs, expected)) if not equal_bits(a, b)}
    return found


def dependencies(trace: Any) -> set[tuple[int, int]]:
    roots = {op.label: at for at, op in enumerate(trace.inputs)}
    above = [nx.ancestors(trace.graph, op.label) for op in trace.outputs]
    return {(roots[label], k) for k, labels in enumerate(above) for label in labels & roots.keys()}


def step_of(names: list[str]) -> st.SearchStrategy[Step]:
    return st.tuples(st.sampled_from(names), st.integers(0, 5), st.integers(0, 5))


@torch.no_grad()
def examine(steps: list[Step], witness: bool) -> Any:
    expected = program(steps)(*inputs())
    trace = tl.trace(program(steps), tuple(inputs()), capture=tl.options.CaptureOptions(witness=witness))
    note(str(trace.provenance))
    if not any(name == "write array" for name, _, _ in steps):
        assert all(equal_bits(a, b) for a, b in zip(trace.output, expected, strict=True))
    if trace.provenance.verified:
        assert true_dependencies(steps, expected) <= dependencies(trace)
        assert trace.check(), str(trace.check())
    return trace


@settings(max_examples=150)
@given(st.lists(step_of(list(STEPS)), min_size=1, max_size=6), st.booleans())
def test_a_verified_trace_shows_what_an_output_depends_on(steps: list[Step], witness: bool) -> None:
    examine(steps, witness)


@settings(max_examples=60)
@given(st.lists(step_of(list(SEEN)), min_size=1, max_size=8), st.booleans())
def test_programs_of_what_is_seen_are_verified(steps: list[Step], witness: bool) -> None:
    assert examine(steps, witness).provenance.verified
