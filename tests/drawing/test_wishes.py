"""What `collapse=` closes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests import models
from tests.drawing.traces import Runs, drawn, traced


class Inner(nn.Sequential):
    """A class of its own, so that it can be named."""


def model() -> nn.Module:
    return nn.Sequential(
        Inner(nn.Linear(4, 4), nn.ReLU()),
        Inner(nn.Linear(4, 5), nn.Tanh()),
        nn.Sequential(nn.ReLU(), nn.Tanh()),
    )


def trace() -> Any:
    return tl.trace(model(), torch.ones(3, 4))


OPEN = ["0.0 Linear", "0.1 ReLU", "1.0 Linear", "1.1 Tanh", "2.0 ReLU", "2.1 Tanh"]
WITHOUT_0 = ["0 Inner", *OPEN[2:]]
WITHOUT_INNER = ["0 Inner", "1 Inner", *OPEN[4:]]

WAYS: dict[str, tuple[Any, list[str]]] = {
    "nothing": (None, OPEN),
    "all below the root": (1, ["0 Inner", "1 Inner", "2 Sequential"]),
    "the root": (0, ["Sequential"]),
    "what is deeper than anything": (7, OPEN),
    "an address": ("0", WITHOUT_0),
    "a call": ("0:1", WITHOUT_0),
    "the name of a class": ("Inner", WITHOUT_INNER),
    "a class": (Inner, WITHOUT_INNER),
    "a predicate": (lambda module: module.type == "Inner", WITHOUT_INNER),
    "a predicate of what is in it": (
        lambda module: any(child.type == "Tanh" for child in module.children),
        [*OPEN[:2], "1 Inner", "2 Sequential"],
    ),
    "a list": (["0", lambda module: module.address == "1"], WITHOUT_INNER),
    "a tuple": (("0", "1"), WITHOUT_INNER),
    "an empty list": ([], OPEN),
}


@pytest.mark.parametrize("way", WAYS)
def test_collapse_closes_modules_that_are_named_in_any_way(way: str) -> None:
    given, titles = WAYS[way]
    assert drawn(trace(), collapse=given).titles() == ["input_1", *titles, "output_1"]


def test_collapse_of_one_call_leaves_the_others_open() -> None:
    picture = drawn(traced("ReusedBlock"), collapse="block:2")
    assert [title for title in picture.titles() if "block" in title] == ["block:2 ResidualBlock"]


def test_a_closed_module_tells_what_is_in_it_and_what_it_gave() -> None:
    picture = drawn(traced("ReusedBlock"), rolled=True, collapse="block")
    assert picture.nodes[picture.node("block")] == [
        "block ResidualBlock",
        "4 ops · 40 params · 3 calls",
        "3×4 float32",
    ]
    (loop,) = [arrow for arrow in picture.arrows if arrow.source == arrow.target]
    assert (loop.label, loop.style) == ("3×4 ×2", "dashed")


def test_a_shared_module_is_closed_by_any_of_its_addresses() -> None:
    shared = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    run = tl.trace(nn.Sequential(models.Wrapper(shared), models.Wrapper(shared)), torch.ones(3, 4))
    for address in ("0.inner", "1.inner"):
        titles = drawn(run, collapse=address).titles()
        assert titles == ["input_1", "inner:1 Sequential", "0.inner:2 Sequential", "output_1"]


def test_a_predicate_is_asked_once_for_each_module_call() -> None:
    asked: list[str] = []
    drawn(trace(), collapse=lambda module: asked.append(module.address))
    assert sorted(asked) == sorted(set(asked))


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ("Innr", tl.errors.MissingKeyError, "no module is called 'Innr'; nearest: 'Inner'"),
        (nn.LSTM, tl.errors.MissingKeyError, "no class of modules is called 'LSTM'"),
        (["0", "9"], tl.errors.MissingKeyError, "no module is called '9'"),
        (-1, tl.errors.OptionError, "no module is -1 levels below the root"),
        (True, tl.errors.InputError, "collapse=True names no module; give a number of levels"),
        (1.5, tl.errors.InputError, "collapse has a float; give a number of levels"),
        ([None], tl.errors.InputError, "collapse=None names no module"),
        ({"0"}, tl.errors.InputError, "collapse has a set; give"),
    ],
)
def test_what_names_no_module_is_refused(given: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        trace().draw(collapse=given)


def test_the_error_of_a_predicate_comes_through() -> None:
    with pytest.raises(ZeroDivisionError, match="division by zero"):
        trace().draw(collapse=lambda module: 1 / 0)


def chained(self: Any, x: Tensor) -> Tensor:
    for part in self.children():
        x = part(x)
    return x


def test_of_two_runs_a_call_is_that_of_the_first() -> None:
    parts = {"first": nn.Linear(4, 4), "rest": nn.Sequential(nn.ReLU(), nn.Tanh())}
    extra = nn.Sequential(nn.Sigmoid(), nn.Softplus())
    more = {"first": parts["first"], "extra": extra, "rest": parts["rest"]}
    runs = {name: Runs(chained, **each) for name, each in (("a", parts), ("b", more))}
    bundle = tl.Bundle({name: tl.trace(run, torch.ones(3, 4)) for name, run in runs.items()})
    titles = ["input_1", "first Linear", "extra.0 Sigmoid", "extra.1 Softplus", "rest Sequential", "output_1"]
    assert drawn(bundle, collapse="rest:1").titles() == titles
    assert drawn(bundle, collapse="Sequential").titles() == [*titles[:2], "extra Sequential", *titles[-2:]]
