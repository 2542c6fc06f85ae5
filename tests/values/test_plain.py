"""What is kept of arguments and outputs, and what is never touched."""

from __future__ import annotations

import enum
import types
from collections import OrderedDict, UserDict, namedtuple
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from torchlens._records import Opaque
from torchlens._values.plain import plain, tensors_in

A, B = torch.zeros(1), torch.ones(2)
Pair = namedtuple("Pair", "low high")


class Typed(NamedTuple):
    low: Tensor
    rest: list[Tensor]


@dataclass
class Boxed:
    low: Tensor
    rest: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Frozen:
    low: Tensor


class Color(enum.Enum):
    RED = 1


class ListOfMine(list):
    pass


def same(value: Any) -> Any:
    return plain(value, lambda tensor: tensor)


CONTAINERS: dict[str, tuple[Any, list[Tensor]]] = {
    "tensor": (A, [A]),
    "tuple": ((A, B, A), [A, B, A]),
    "list": ([A, [B]], [A, B]),
    "dict": ({"b": B, "a": A}, [B, A]),
    "ordered dict": (OrderedDict(b=B, a=A), [B, A]),
    "namedtuple": (Pair(B, A), [B, A]),
    "typed namedtuple": (Typed(A, [B]), [A, B]),
    "dataclass": (Boxed(A, {"x": B}), [A, B]),
    "frozen dataclass": (Frozen(B), [B]),
    "slice": (slice(A, None, B), [A, B]),
    "user dict": (UserDict(a=A), [A]),
    "list of a subclass": (ListOfMine([A, B]), [A, B]),
    "results of torch": (torch.max(torch.rand(2, 2), 1), None),
    "numbers": ((1, 2.5, None, "a", 1j, True, ..., torch.float32), []),
    "size": (torch.Size([1, 2]), []),
    "nothing": ((), []),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_tensors_of_known_containers_come_in_order(name: str) -> None:
    value, expected = CONTAINERS[name]
    found = tensors_in(value)
    assert [id(tensor) for tensor in found] == [
        id(tensor) for tensor in (list(value) if expected is None else expected)
    ]


@pytest.mark.parametrize(
    "name", [n for n in CONTAINERS if n not in ("user dict", "list of a subclass", "results of torch")]
)
def test_known_containers_keep_their_type(name: str) -> None:
    value, _ = CONTAINERS[name]
    assert type(same(value)) is type(value)


def test_containers_are_copied() -> None:
    inner: dict[str, Any] = {"a": [A]}
    boxed = Boxed(A, inner)
    copied = same([inner, boxed])
    inner["a"].append(B)
    inner["b"] = B
    boxed.low = B
    assert copied[0] == {"a": [A]}
    assert copied[1].low is A and copied[1].rest == {"a": [A]}


def test_a_dataclass_is_copied_without_calling_its_code() -> None:
    @dataclass
    class Counted:
        low: Tensor
        made: int = 0

        def __post_init__(self) -> None:
            self.made += 1

    assert same(Counted(A)).made == 1


def test_packed_sequences_stay_packed() -> None:
    packed = torch.nn.utils.rnn.pack_sequence([torch.rand(3, 2), torch.rand(2, 2)])
    copied = same(packed)
    assert type(copied) is type(packed)
    assert copied.data is packed.data and copied.batch_sizes is packed.batch_sizes


def test_a_model_output_is_a_dict_of_its_fields() -> None:
    outputs = pytest.importorskip("transformers.modeling_outputs", exc_type=ImportError)
    given = outputs.BaseModelOutput(last_hidden_state=A, hidden_states=(B,))
    copied = same(given)
    assert type(copied) is type(given)
    assert copied["last_hidden_state"] is copied.last_hidden_state is A
    assert list(copied.keys()) == ["last_hidden_state", "hidden_states"]
    assert tensors_in(given)[0] is A and len(tensors_in(given)) == 2


class Watched:
    """An object none of whose code may run."""

    held = A

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("walked")

    __len__ = __getitem__ = __repr__ = __str__ = __eq__ = __bool__ = __iter__  # type: ignore[assignment]
    __hash__ = object.__hash__

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"asked for {name}")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Watched(), f"<{__name__}.Watched>"),
        (Color.RED, "Color.RED"),
        (len, "<builtin_function_or_method len>"),
        (same, "<function same>"),
        (Boxed, "<type Boxed>"),
        (iter([A]), "<builtins.list_iterator>"),
        ({A}, "<builtins.set>"),
        (object(), "<builtins.object>"),
        (types.SimpleNamespace(a=A), "<types.SimpleNamespace>"),
    ],
    ids=["object", "enum", "builtin", "function", "class", "iterator", "set", "plain object", "namespace"],
)
def test_other_objects_are_named_and_not_held(value: Any, text: str) -> None:
    kept = same(value)
    assert isinstance(kept, Opaque)
    assert (kept.type_name, repr(kept)) == (type(value).__qualname__, text)
    assert tensors_in(value) == []


def test_a_lambda_is_named() -> None:
    assert repr(same(lambda: A)) == "<function <lambda>>"


def test_keys_that_are_no_plain_data_are_named() -> None:
    copied = same({Color.RED: A, 3: B})
    assert [repr(key) for key in copied] == ["Color.RED", "3"]


def test_a_list_that_contains_itself_ends() -> None:
    value: list[Any] = [A]
    value.append(value)
    assert set(map(id, tensors_in(value))) == {id(A)}


def test_a_list_that_contains_itself_several_times_ends() -> None:
    value: list[Any] = [A]
    value.extend([value] * 3)
    value.append({"again": value})
    assert set(map(id, tensors_in(value))) == {id(A)}


def test_numpy_numbers_become_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    assert same(numpy.float32(1.5)) == 1.5 and type(same(numpy.int64(3))) is int
