"""What a block vouches for: its inputs and what its own code makes between calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests.programs.origin_program import scripted
from tests.programs.reading import floats, lint
from torchlens._capture import ages

LAYER = nn.Linear(3, 3)


@contextmanager
def block(*names: str) -> Iterator[Any]:
    """A capture whose trace must have these reasons."""
    with tl.capture(LAYER) as trace:
        yield trace
    lint(trace)
    assert tuple(doubt.name for doubt in trace.provenance.reasons) == names, str(trace.provenance)


def test_inputs_made_before_and_between() -> None:
    x = floats(3)
    with block():
        for step in range(3):
            x = LAYER(x) + step


def test_a_first_input_may_come_from_anywhere() -> None:
    with block():
        LAYER(torch.Tensor([1.0, 2.0, 3.0]))


def test_batches_of_numpy() -> None:
    with block():
        for step in range(3):
            LAYER(torch.from_numpy(np.full(3, step, dtype="float32")))


def test_an_input_that_was_made_unseen_of_what_came_before() -> None:
    with block("unknown_origin") as trace:
        y = LAYER(floats(3))
        LAYER(scripted(y))
    assert trace.provenance.reasons[0].ops == ("input_1:1",)


def test_an_input_that_went_through_numpy() -> None:
    with block("host_round_trip") as trace, torch.no_grad():
        y = LAYER(floats(3))
        LAYER(torch.from_numpy(np.sin(y.numpy())))
    assert [parent.label for parent in trace["input_1:1"].parents] == ["linear_1:1"]


def test_a_local_of_the_block_s_frame_that_was_made_in_the_block() -> None:
    with block("unknown_origin"):
        y = scripted(LAYER(floats(3)))
        y + 1


def test_an_object_that_the_model_is_given() -> None:
    class Cache:
        def __init__(self) -> None:
            self.layers = [{"keys": floats(3)}]

    def model(x: Tensor, cache: Cache) -> Tensor:
        kept = cache.layers[0]["keys"]
        cache.layers[0]["keys"] = x * 2
        return x + kept

    trace = tl.trace(model, (floats(3), Cache()))
    assert trace.provenance.verified
    assert [op.kind for op in trace.ops].count("source") == 1


def test_what_was_put_unseen_into_an_object_that_the_model_is_given() -> None:
    def model(x: Tensor, cache: dict[str, Tensor]) -> Tensor:
        cache["keys"] = scripted(x)
        return x + cache["keys"]

    assert tl.trace(model, (floats(3), {})).provenance.verification_reason == "unknown_origin"


@pytest.mark.parametrize("keep", ["attribute", "local"])
def test_names_decide_where_ages_cost_too_much(keep: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What began inside the capture then vouches for nothing; what was there before does."""
    monkeypatch.setattr(ages, "_MOST_SCANNED", -1)
    old = iter([floats(3)])

    class Keeps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kept = floats(3)

        def forward(self, x: Tensor) -> Tensor:
            held = next(old) if keep == "local" else self.kept
            return x + held

    assert tl.trace(Keeps(), floats(3)).provenance.verified is (keep == "attribute")


def repeated(times: int, make: Callable[[int], Tensor]) -> Any:
    def model(x: Tensor) -> Tensor:
        for step in range(times):
            x = x + make(step)
        return x

    return tl.trace(model, floats(3))


def test_many_constants_are_no_burden() -> None:
    trace = repeated(300, lambda step: torch.from_numpy(np.full(3, step, dtype="float32")))
    assert trace.provenance.verified and trace.provenance.reasons == ()


def test_many_unknown_tensors_are_one_reason() -> None:
    trace = repeated(50, lambda step: torch.Tensor([1.0, 2.0, float(step)]))
    (doubt,) = trace.provenance.reasons
    assert (doubt.name, doubt.count, len(doubt.ops)) == ("unknown_origin", 50, 50)
    assert str(doubt).endswith("At source_1:1, source_2:1, source_3:1, ....")
