"""Containers of a user's own class are read without running their code."""

from __future__ import annotations

from collections import UserDict, namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from torchlens._records import Opaque
from torchlens._values.plain import plain, tensors_in

X = torch.ones(2)


class OneArgument(namedtuple("Pair", "a b")):
    def __new__(cls, a: Any) -> OneArgument:
        return super().__new__(cls, a, a)


class Endless(list):  # type: ignore[type-arg]
    def __iter__(self) -> Iterator[Any]:
        while True:
            yield 1


class Raises(dict):  # type: ignore[type-arg]
    def items(self) -> Any:
        raise RuntimeError("items was called")


class Mapping(UserDict):  # type: ignore[type-arg]
    def items(self) -> Any:
        raise RuntimeError("items was called")


@dataclass
class Bound:
    a: Any

    def __new__(cls, a: Any) -> Bound:
        return object.__new__(cls)


class Pretends:
    @property
    def __class__(self) -> Any:
        raise RuntimeError("__class__ was read")


CONTAINERS: dict[str, Any] = {
    "a named tuple that takes one argument": OneArgument(X),
    "a list that iterates without end": Endless([X]),
    "a dict whose items raise": Raises(a=X),
    "a mapping whose items raise": Mapping(a=X),
    "a dataclass with a __new__ of its own": Bound(X),
}


@pytest.mark.parametrize("value", CONTAINERS.values(), ids=CONTAINERS)
def test_tensors_are_found(value: Any) -> None:
    assert all(found is X for found in tensors_in(value)) and tensors_in(value)


def test_an_object_that_hides_its_class_is_opaque() -> None:
    assert type(plain(Pretends(), lambda tensor: tensor)) is Opaque
