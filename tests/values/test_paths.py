"""The ways to the tensors in a value, spelled as Python would go them."""

from __future__ import annotations

import enum
from collections import OrderedDict, UserDict, namedtuple
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from torchlens._values.paths import paths_in
from torchlens._values.plain import tensors_in

A, B = torch.zeros(1), torch.ones(2)
Pair = namedtuple("Pair", "low high")


@dataclass
class Boxed:
    low: Tensor
    rest: Any = None
    unset: Any = field(init=False, repr=False)


@dataclass
class Output(OrderedDict[str, Any]):
    """A dict of its fields, as a ModelOutput is."""

    logits: Any = None
    past: Any = None

    def __post_init__(self) -> None:
        for name in ("logits", "past"):
            self[name] = getattr(self, name)


class Color(enum.Enum):
    RED = 1


class Deceiving(Pair):
    _fields = (1, 2, 3)  # type: ignore[assignment]

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("no code of a user's class is to run")


class Raising:
    def __getattribute__(self, name: str) -> Any:
        raise AssertionError("no code of a user's class is to run")


VALUES: dict[str, tuple[Any, list[str]]] = {
    "tensor": (A, [""]),
    "none": ((None, 3, "text"), []),
    "tuple": ((A, 1, B), ["[0]", "[2]"]),
    "list in tuple": ((1, [A, (B,)]), ["[1][0]", "[1][1][0]"]),
    "dict": ({"image": A, 3: B}, ['["image"]', "[3]"]),
    "keys": (
        {'a"b\n': A, True: A, None: A, 2.5: A, b"b": A, torch.float32: A, Color.RED: A, "é": A, "\ud800": A},
        ['["a\\"b\\n"]', "[True]", "[None]", "[2.5]", "[b'b']", "[torch.float32]", "[Color.RED]", '["é"]',
         '["\\ud800"]'],
    ),
    "a number too long to spell": ({1 << 20_000: A}, [f"[{hex(1 << 20_000)}]"]),
    "other dicts": ([OrderedDict(x=A), UserDict(y=B)], ['[0]["x"]', '[1]["y"]']),
    "named tuple": ([Pair(A, [B])], ["[0].low", "[0].high[0]"]),
    "dataclass": (Boxed(A, {"x": B}), [".low", '.rest["x"]']),
    "model output": (Output(A, ((A, B),)), [".logits", ".past[0][0]", ".past[0][1]"]),
    "slice": ((slice(A, None, 2),), ["[0].start"]),
    "return type of torch": (torch.max(torch.ones(2, 2), 0), ["[0]", "[1]"]),
    "named tuple that lies": (Deceiving(A, B), ["[0]", "[1]"]),
    "object": ([Raising(), A], ["[1]"]),
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_paths(name: str) -> None:
    value, expected = VALUES[name]
    found = list(paths_in(value))
    assert [path for path, _ in found] == expected
    assert [id(tensor) for _, tensor in found] == [id(tensor) for tensor in tensors_in(value)]


def test_a_value_that_holds_itself_ends_there() -> None:
    held: list[Any] = [A]
    held.append(held)
    assert [path for path, _ in paths_in(held)] == ["[0]"]
