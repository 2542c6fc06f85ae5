"""The parameters that inputs come through, however a model says what it takes."""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests.programs.reading import floats


def plain_decorator(function: Callable[..., Any]) -> Callable[..., Any]:
    def inner(*given: Any, **named: Any) -> Any:
        return function(*given, **named)

    return inner


def wrapping_decorator(function: Callable[..., Any]) -> Callable[..., Any]:
    return functools.wraps(function)(plain_decorator(function))


class Adds(nn.Module):
    def forward(self, left: Tensor, right: Any = 1.0) -> Tensor:
        return left + right

    def twice(self, both: Tensor) -> Tensor:
        return self(both, both)


class Decorated(nn.Module):
    @plain_decorator
    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return left + right


class Wrapped(nn.Module):
    @wrapping_decorator
    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return left + right


class Misleading(nn.Module):
    """Says of itself that it takes one argument, and takes two."""

    @functools.wraps(lambda self, one: one)
    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return left + right


class SetLater(nn.Module):
    """Its forward is an attribute of the instance, as offloading libraries put one there."""

    def __init__(self) -> None:
        super().__init__()
        self.forward = lambda hidden, mask: hidden + mask


class Lazy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.LazyLinear(3)

    def forward(self, image: Tensor) -> Tensor:
        return self.inner(image)


class OwnCall(nn.Module):
    def __call__(self, image: Tensor, mask: Tensor) -> Tensor:
        return super().__call__(image * mask)

    def forward(self, masked: Tensor) -> Tensor:
        return masked + 1


class NoSignature:
    """Answers questions about its parameters with an exception."""

    @property
    def __signature__(self) -> Any:
        raise RuntimeError("not you")

    def __call__(self, left: Tensor, right: Tensor) -> Tensor:
        return left + right


def several(first: Tensor, /, second: Tensor, *more: Tensor, scale: Any = 1, **others: Tensor) -> Tensor:
    return sum([first, second, *more, scale, *others.values()], torch.zeros(2))


def two() -> tuple[Tensor, Tensor]:
    return floats(2), floats(2)


CALLABLES: dict[str, tuple[Callable[[], Any], tuple[Any, ...], dict[str, Any], list[str]]] = {
    "positional": (Adds, two(), {}, ["left", "right"]),
    "keyword": (Adds, (floats(2),), {"right": floats(2)}, ["left", "right"]),
    "default": (Adds, (floats(2),), {}, ["left"]),
    "function": (lambda: several, two(), {}, ["first", "second"]),
    "more": (lambda: several, (*two(), *two()), {}, ["first", "second", "more[0]", "more[1]"]),
    "keywords": (
        lambda: several, two(), {"scale": floats(2), "extra": floats(2)},
        ["first", "second", "scale", "extra"],
    ),
    "lambda": (lambda: lambda q: q + 1, (floats(2),), {}, ["q"]),
    "function of torch": (lambda: torch.add, two(), {}, ["args[0]", "args[1]"]),
    "module of torch": (lambda: nn.Linear(2, 2), (floats(2),), {}, ["input"]),
    "bound method": (lambda: Adds().twice, (floats(2),), {}, ["both"]),
    "bound forward": (lambda: Adds().forward, two(), {}, ["left", "right"]),
    "bound call": (lambda: Adds().__call__, two(), {}, ["left", "right"]),
    "partial": (lambda: functools.partial(several, floats(2)), two(), {}, ["second", "more[0]"]),
    "partial of a module": (lambda: functools.partial(Adds(), floats(2)), (floats(2),), {}, ["right"]),
    "decorated": (Decorated, two(), {}, ["given[0]", "given[1]"]),
    "wrapped": (Wrapped, two(), {}, ["left", "right"]),
    "misleading": (Misleading, two(), {}, ["args[0]", "args[1]"]),
    "set later": (SetLater, two(), {}, ["hidden", "mask"]),
    "lazy": (Lazy, (floats(2, 3),), {}, ["image"]),
    "own __call__": (OwnCall, two(), {}, ["image", "mask"]),
    "no signature": (NoSignature, two(), {}, ["args[0]", "args[1]"]),
    "data parallel": (lambda: nn.DataParallel(Adds()), two(), {}, ["left", "right"]),
}  # fmt: skip


def names(trace: Any) -> list[str | None]:
    return [op.name for op in trace.inputs]


@pytest.mark.parametrize("name", CALLABLES)
def test_inputs_are_named_after_parameters(name: str) -> None:
    build, args, kwargs, expected = CALLABLES[name]
    assert names(tl.trace(build(), args, input_kwargs=kwargs)) == expected
    assert names(tl.trace(build(), args, input_kwargs=kwargs, save=[])) == expected


@pytest.mark.parametrize("compiled", [Adds, lambda: several], ids=["module", "function"])
@pytest.mark.filterwarnings("ignore:Using `torch.compile")
def test_compiled_code_has_the_parameters_of_what_was_compiled(compiled: Callable[[], Any]) -> None:
    expected = names(tl.trace(compiled(), two()))
    assert names(tl.trace(torch.compile(compiled(), backend="eager"), two())) == expected
    assert expected[0] in ("left", "first")


@pytest.mark.filterwarnings("ignore:Using `torch.compile")
def test_wrappers_are_looked_through_in_a_block() -> None:
    given = two()
    for wrapped in (torch.compile(Adds(), backend="eager"), nn.DataParallel(Adds())):
        with tl.capture(wrapped) as trace:
            wrapped(*given)
        assert names(trace) == ["left", "right"]


def test_root_calls_of_a_block_name_what_they_bring_in_first() -> None:
    model, (one, other), late = Adds(), two(), floats(2)
    with tl.capture(model) as trace:
        model(one, one)
        _ = late * 2  # used before it is given
        model(one, right=other)
        model(model(other), late)
    assert names(trace) == ["left", "right", "right"]
    assert [op.out is given for op, given in zip(trace.inputs, (one, other, late), strict=True)] == [True] * 3


def test_forward_takes_the_arguments_of_root_calls_even_where_a_class_has_its_own_call() -> None:
    model, given = OwnCall(), two()
    with tl.capture(model) as trace:
        model(*given)
    assert names(trace) == [] and [op.name for op in trace.ops if op.kind == "source"] == ["image", "mask"]


def test_a_tensor_given_twice_has_its_first_place() -> None:
    x, y = two()
    nested = tl.trace(lambda pair, again: pair["x"] + pair["y"] + again, ({"x": x, "y": y}, x))
    assert names(nested) == ['pair["x"]', 'pair["y"]']


def test_what_a_failed_run_was_given_is_named() -> None:
    model, given = Adds(), (floats(2), floats(3))
    with pytest.raises(RuntimeError, match="must match"), tl.capture(model) as trace:
        model(*given)
    assert names(trace) == ["left", "right"]


def test_what_was_called_is_not_kept() -> None:
    class Unkept(nn.Module):
        def forward(self, left: Tensor) -> Tensor:
            return left + 1

    model = Unkept()
    there = weakref.ref(model)
    gc.disable()
    try:
        trace = tl.trace(model, floats(2))
        del model
        assert names(trace) == ["left"] and there() is None
    finally:
        gc.enable()
