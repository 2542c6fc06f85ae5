"""Inputs and outputs by name: where they stand in what root calls received and returned."""

from __future__ import annotations

import json
from collections import namedtuple
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests.programs.answers import round_trip
from tests.programs.examples import EXAMPLES
from tests.programs.reading import floats
from tests.saving.mutations import parts_of, sealed, write_directory
from torchlens.errors import DamagedFileError
from torchlens.saving.layout import RECORD

Pair = namedtuple("Pair", "low high")
A, B, C = floats(2), floats(2), floats(2)


@dataclass
class Boxed:
    hidden: Tensor
    rest: list[Tensor]


class Takes(nn.Module):
    """Computes with all tensors that it is given, and returns what the test says."""

    def __init__(self, answer: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, batch: Any, *more: Any, mask: Any = None, **others: Any) -> Any:
        total = torch.zeros(2)
        for tensor in tensors([batch, more, mask, others]):
            total = total + tensor
        return self.answer(total)


def tensors(value: Any) -> Iterable[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors(item)
    elif value is not None:
        yield from tensors(list((value if isinstance(value, dict) else vars(value)).values()))


INPUTS: dict[str, tuple[tuple[Any, ...], dict[str, Any], list[str]]] = {
    "one": ((A,), {}, ["batch"]),
    "keyword": ((A,), {"mask": B, "other": C}, ["batch", "mask", "other"]),
    "more": ((A, B, C), {}, ["batch", "more[0]", "more[1]"]),
    "dict": (({"image": A, 3: [B]},), {}, ['batch["image"]', "batch[3][0]"]),
    "nested tuple": (((A, (B, C)),), {}, ["batch[0]", "batch[1][0]", "batch[1][1]"]),
    "dataclass": ((Boxed(A, [B]),), {"mask": Boxed(C, [])}, ["batch.hidden", "batch.rest[0]", "mask.hidden"]),
    "named tuple": ((1.0 * A, Pair(B, {"x": C})), {}, ["batch", "more[0].low", 'more[0].high["x"]']),
    "twice": (({"x": A, "y": B}, A), {}, ['batch["x"]', 'batch["y"]']),
}
OUTPUTS: dict[str, tuple[Callable[[Tensor], Any], list[str | None]]] = {
    "tensor": (lambda x: x, [None]),
    "tuple": (lambda x: (x, 3, x * 2), ["[0]", "[2]"]),
    "a tuple of one": (lambda x: (x,), ["[0]"]),
    "dict": (lambda x: {"loss": x.sum(), "all": [x, None]}, ['["loss"]', '["all"][0]']),
    "dataclass": (lambda x: Boxed(x, [x + 1]), ["hidden", "rest[0]"]),
    "named tuple": (lambda x: [Pair(x, (x,))], ["[0].low", "[0].high[0]"]),
    "same twice": (lambda x: (x, {"again": x}), ["[0]", '[1]["again"]']),
    "none": (lambda x: x.tolist(), []),
}


def names(ops: Iterable[Any]) -> list[str | None]:
    return [op.name for op in ops]


def also_loaded(trace: Any, directory: Path) -> list[Any]:
    """The trace, as loaded from a file, and as loaded from a file of that."""
    once = round_trip(trace, directory / "once.tlens")
    return [trace, once, round_trip(once, directory / "twice")]


@pytest.mark.parametrize("kept", [None, []], ids=["kept", "not kept"])
@pytest.mark.parametrize("name", INPUTS)
def test_inputs(name: str, kept: Any, tmp_path: Path) -> None:
    args, kwargs, expected = INPUTS[name]
    trace = tl.trace(Takes(torch.tanh), args, input_kwargs=kwargs, save=kept)
    for each in also_loaded(trace, tmp_path):
        assert names(each.inputs) == expected


@pytest.mark.parametrize("kept", [None, []], ids=["kept", "not kept"])
@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs(name: str, kept: Any, tmp_path: Path) -> None:
    answer, expected = OUTPUTS[name]
    for each in also_loaded(tl.trace(Takes(answer), A, save=kept), tmp_path):
        assert names(each.outputs) == expected


def test_a_model_output_has_its_fields(tmp_path: Path) -> None:
    example = EXAMPLES["GivesModelOutput"]
    trace = tl.trace(example.build(), example.inputs())
    found = [
        key if isinstance(held, Tensor) else f"{key}[{at}]"
        for key, held in trace.output.items()
        for at in range(1 if isinstance(held, Tensor) else len(held))
    ]
    assert len(found) > 1
    for each in also_loaded(trace, tmp_path):
        assert names(each.outputs) == found


def test_outputs_of_a_block_are_those_of_each_root_call(tmp_path: Path) -> None:
    several, one = Takes(lambda x: {"low": x, "high": [x + 1]}), Takes(torch.tanh)
    several.register_forward_hook(lambda module, args, output: output)  # its output is read later
    with tl.capture({"several": several, "one": one}) as trace:
        one(several(A, mask=B)["low"])
        several(A)
    for each in also_loaded(trace, tmp_path):
        assert names(each.inputs) == ["batch", "mask"]
        assert names(each.outputs) == ['["low"]', '["high"][0]', None, '["low"]', '["high"][0]']


def test_a_root_call_that_raised_returned_nothing() -> None:
    model, failing = Takes(lambda x: (x, x)), Takes(lambda x: x @ torch.zeros(3))
    with tl.capture({"model": model, "failing": failing}) as trace:
        model(A)
        with pytest.raises(RuntimeError, match="size"):
            failing(A)
        model(B)
    assert names(trace.outputs) == ["[0]", "[1]", "[0]", "[1]"]
    assert names(trace.inputs) == ["batch", "batch"]


def test_only_calls_have_no_name_and_labels_do_not_tell_names() -> None:
    trace = tl.trace(Takes(lambda x: (x, x)), A)
    assert {op.kind for op in trace.ops if op.name is None} == {"call"}
    assert [op.label for op in (*trace.inputs, *trace.outputs)] == ["input_1:1", "output_1:1", "output_2:1"]
    assert [trace.layers["input_1"].name, trace.layers["output_2"].name] == ["batch", "[1]"]
    assert "name       batch\n" in str(trace.ops["input_1:1"])


def test_runs_are_lined_up_whatever_their_parameters_are_called() -> None:
    one, other = tl.trace(lambda x: (x.sin(),), A), tl.trace(lambda y: [y.sin()], A)
    assert names(one.inputs) != names(other.inputs)
    tl.testing.assert_same_graph(one, other)
    comparison = tl.Bundle({"one": one, "other": other}).compare("one", "other")
    assert comparison.equal and len(comparison) == len(one.ops)


def without_names(trace: Any, directory: Path, names: Any = None) -> Any:
    """The trace as a file that does not tell its inputs' names, or tells these."""
    tl.save(trace, directory / "named")
    parts = parts_of(directory / "named")
    record = json.loads(parts[RECORD])
    del record["input_names"]
    if names is not None:
        record["input_names"] = names
    parts[RECORD] = json.dumps(record).encode()
    sealed(parts)
    write_directory(parts, directory / "unnamed")
    return tl.load(directory / "unnamed")


@pytest.mark.parametrize("kept", [None, []], ids=["kept", "not kept"])
def test_of_a_file_without_names_inputs_are_known_by_position_or_keyword(kept: Any, tmp_path: Path) -> None:
    model = Takes(lambda x: (x, x))
    trace = tl.trace(model, (A, {"x": B}), input_kwargs={"mask": [C]}, save=kept)
    expected = ["args[0]", 'args[1]["x"]', "mask[0]"]
    loaded = without_names(trace, tmp_path)
    assert names(loaded.inputs) == expected and names(loaded.outputs) == ["[0]", "[1]"]
    assert names(round_trip(loaded, tmp_path / "again").inputs) == expected


def test_of_a_function_in_such_a_file_nothing_is_known(tmp_path: Path) -> None:
    inner = Takes(torch.tanh)
    trace = tl.trace(lambda x, y: (inner(y, x),), (A, B))
    assert names(trace.inputs) == ["x", "y"]
    loaded = without_names(trace, tmp_path)
    assert names(loaded.inputs) == [None, None] and names(loaded.outputs) == ["[0]"]


@pytest.mark.parametrize("wrong", [["x"], [1, 2], "xy", {"x": 1}, 3], ids=str)
def test_names_that_do_not_fit_the_inputs_are_damage(wrong: Any, tmp_path: Path) -> None:
    with pytest.raises(DamagedFileError, match=r"1 names for 2 inputs|is no text|is no list"):
        without_names(tl.trace(Takes(torch.tanh), (A, B)), tmp_path, wrong)
