"""What ended a run comes back from a file as it was, and only if the record has what it names."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import torchlens as tl
from tests import models
from tests.programs.reading import floats
from torchlens._files.sealed import Fields
from torchlens._records import Failure
from torchlens.saving.facts import FactReader
from torchlens.saving.reading import _failed


def failed(function: Callable[..., Any] | torch.nn.Module, *inputs: Any, **options: Any) -> tl.Trace:
    try:
        with tl.capture(function, **options) as trace:
            function(*inputs)
    except BaseException:
        return trace
    raise AssertionError("it did not raise")


def sizes(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x.relu(), x[1:].sin(), x.max(0)[0]], dim=1)


@pytest.mark.parametrize("options", [{}, {"save": []}], ids=["whole", "little"])
@pytest.mark.parametrize("ending", ["run.tlens", "run"])
@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        pytest.param(sizes, (floats(3, 4),), id="a call"),
        pytest.param(models.Raises(KeyboardInterrupt("deliberate")), (floats(3, 4),), id="no call"),
        pytest.param(torch.nn.Linear(3, 2), (floats(3, 4),), id="at the start"),
    ],
)
def test_it_comes_back_as_it_was(
    function: Any, inputs: tuple[Any, ...], ending: str, options: dict[str, Any], tmp_path: Path
) -> None:
    trace = failed(function, *inputs, **options)
    tl.save(trace, tmp_path / ending)
    loaded = tl.load(tmp_path / ending)
    assert loaded.error.failure == trace.error.failure
    assert str(loaded.error) == str(trace.error)


def plain(failure: Failure) -> dict[str, Any]:
    return json.loads(json.dumps(dataclasses.asdict(failure)))


def read(found: dict[str, Any], trace: tl.Trace) -> Failure | None:
    def none(number: int) -> Any:
        pytest.fail("no tensor is named")

    reader = FactReader(Fields({"failure": found}), none, none)
    return _failed(reader.failure(), trace._record.rows, trace._record.module_calls)


Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda failure: failure.update(module_call=99), "it names module call 99 of 1"),
        (lambda failure: failure.update(module_call=-1), "is no count"),
        (lambda failure: failure.update(in_hook=1), "'1' is neither true nor false"),
        (lambda failure: failure.update(lines=[{}]), r"it has \[\] for a SourceLine"),
        (lambda failure: failure.update(more=0), "for a Failure"),
        (lambda failure: failure.update(call=[]), r"object"),
        (lambda failure: failure["call"]["arguments"][0].update(made=[99, 0]), "it names row 99 of 5"),
        (lambda failure: failure["call"]["arguments"][0].update(made=[1, 1]), "it names output 1 of 1"),
        (lambda failure: failure["call"]["arguments"][2].update(made=[4, 2]), "it names output 2 of 2"),
        (lambda failure: failure["call"]["arguments"][0].update(made=[0]), "2 items are needed, 1 are there"),
        (lambda failure: failure["call"]["arguments"][0].update(shape=[3, "4"]), "'4' is no integer"),
        (lambda failure: failure["call"].update(composites=[None]), "'None' is no text"),
    ],
)
def test_what_a_file_makes_up_is_refused(change: Change, message: str) -> None:
    trace = failed(sizes, floats(3, 4))
    found = plain(trace.error.failure)
    assert read(found, trace) == trace.error.failure
    change(found)
    with pytest.raises(ValueError, match=message):
        read(found, trace)
