"""Tensors that no recorded call made: found by name, or of unknown origin."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

import torchlens as tl
from tests.models import KeepsTables
from tests.programs.reading import floats

GLOBAL = torch.ones(3)
TABLE = {"deep": [SimpleNamespace(scale=torch.ones(3))]}


def sources(function: Any, *inputs: Any, **kwargs: Any) -> list[str]:
    trace = tl.trace(function, inputs or (floats(3),), **kwargs)
    names = [op.name for op in trace.ops if op.kind == "source"]
    assert trace.provenance.verified is ("unknown" not in names)
    return names


class Holds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.ones(3)
        self.cache = {"k": [torch.zeros(3)], 0: (torch.zeros(3),)}
        self.inner = nn.Module()
        self.inner.shift = torch.ones(3)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale + self.cache["k"][0] + self.cache[0][0] + self.inner.shift


def test_attributes_of_modules_are_named_by_address() -> None:
    names = sources(Holds())
    assert [name.removeprefix("self.") for name in names][:3] == ["scale", "cache['k'][0]", "cache[0][0]"]
    assert names[3].endswith("shift")


def test_globals_closures_locals_and_defaults() -> None:
    outer, first, second = torch.ones(3), torch.ones(3), torch.ones(3)

    def model(x: Tensor, default: Tensor = first, *, other: Tensor = second) -> Tensor:
        return x + GLOBAL + TABLE["deep"][0].scale + outer + default + other

    assert sources(model) == ["GLOBAL", "TABLE['deep'][0].scale", "outer", "default", "other"]


def test_tensors_of_the_block_s_own_frame() -> None:
    mine = torch.ones(3)
    with tl.capture(nn.Identity()) as trace:
        mine * 2
    assert [op.name for op in trace.ops if op.kind == "source"] == ["mine"]


def test_a_tensor_from_nowhere_makes_the_trace_unverified() -> None:
    trace = tl.trace(lambda x: x + torch.Tensor([1.0, 2.0, 3.0]), floats(3))
    assert trace.provenance.verification_reason == "unknown_origin"
    assert [op.name for op in trace.ops if op.kind == "source"] == ["unknown"]


def test_a_source_is_one_op_however_often_it_is_used() -> None:
    assert sources(lambda x: (x + GLOBAL) * GLOBAL - GLOBAL) == ["GLOBAL"]


def test_a_view_of_a_source_made_before_shares_its_origin() -> None:
    part = GLOBAL[1:]
    trace = tl.trace(lambda x: (x + GLOBAL)[1:] + part, floats(3))
    assert trace.provenance.verified


class Hostile:
    """Runs code, with effects, whenever it is looked at."""

    looks: list[str] = []

    @property
    def __class__(self) -> type:  # type: ignore[override]
        Hostile.looks.append("__class__")
        return object

    def __getattr__(self, name: str) -> Any:
        Hostile.looks.append(name)
        raise AttributeError(name)

    def __iter__(self) -> Any:
        Hostile.looks.append("__iter__")
        return iter(())


def test_looking_for_a_name_runs_no_code_of_the_user() -> None:
    hostile = Hostile()
    Hostile.looks.clear()

    def model(x: Tensor) -> Tensor:
        held = hostile
        y = x + torch.Tensor([1.0, 2.0, 3.0])
        return y if held is hostile else x

    assert sources(model) == ["unknown"]
    assert Hostile.looks == []


def test_an_object_that_leads_everywhere_ends() -> None:
    nodes: list[Any] = [SimpleNamespace() for _ in range(50)]
    for node in nodes:
        node.all = nodes
    assert sources(lambda x: x + torch.Tensor([1.0, 2.0, 3.0]) if nodes else x) == ["unknown"]


def test_a_parameter_of_no_model_is_found_by_name() -> None:
    free = nn.Parameter(torch.ones(3))
    assert sources(lambda x: x * free) == ["free"]


def test_a_module_s_tensor_given_as_input_is_what_it_is_in_the_model() -> None:
    model = nn.Linear(3, 3, bias=False)
    trace = tl.trace(model, model.weight)
    assert list(trace.inputs) == [] and trace.ops[0].type == "linear"
    assert [param.address for param in trace["linear_1"].params] == ["weight"]


def test_tables_kept_from_an_earlier_run_have_names() -> None:
    KeepsTables.scales.cache_clear()
    KeepsTables.made.clear()
    model, x = KeepsTables(), floats(2, 4)
    assert sources(model, x) == ["self.shift"]
    again = tl.trace(model, x)
    assert again.provenance.verified
    held = [op.name.partition(".cache")[0] for op in again.ops if op.kind == "source"]
    assert held == ["self.positions", "self.made[key 0]", "self.shift", "self.scales", "self.scales"]
