"""Sequences that can be asked by name, and what a trace gives for a key."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests import models
from tests.programs.reading import floats
from torchlens._trace.layer import Layer
from torchlens._trace.module import Module, ModuleCall
from torchlens._trace.op import Op
from torchlens.errors import AmbiguousKeyError, InputError, MissingKeyError


class Features(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.features(self.features[1](x))


@pytest.fixture
def trace() -> tl.Trace:
    return tl.trace(Features(), floats(3, 4))


@pytest.mark.parametrize(
    ("key", "kind", "text"),
    [
        ("relu_1", Layer, "relu_1"),
        ("relu_1:2", Op, "relu_1:2"),
        ("features.1", Module, "features.1"),
        ("features.1:2", ModuleCall, "features.1:2"),
        ("features", Module, "features"),
        ("", Module, "Features"),
        (":1", ModuleCall, ":1"),
        (0, Op, "input_1:1"),
        (-1, Op, "output_1:1"),
        (1, Op, "relu_1:1"),
    ],
)
def test_a_key_gives_one_thing(trace: tl.Trace, key: Any, kind: type, text: str) -> None:
    found = trace[key]
    assert type(found) is kind and found.title == text
    assert key in trace


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("rleu_1", "'relu_1'"),
        ("linear_1:2", "'linear_1:1'"),
        ("feature.1", "'features.1'"),
        ("features.1:9", "'features.1:"),
    ],
)
def test_a_miss_names_what_is_near(trace: tl.Trace, key: str, near: str) -> None:
    with pytest.raises(
        MissingKeyError, match=f"{re.escape(repr(key))}; nearest: .*{re.escape(near)}"
    ) as caught:
        trace[key]
    names = re.findall(r"'[^']*'", str(caught.value).partition("nearest:")[2])
    assert len(names) == len(set(names)), "a name is given twice"
    assert isinstance(caught.value, KeyError) and key not in trace


@pytest.mark.parametrize("key", [6, -7, 100])
def test_an_index_outside_says_what_there_is(trace: tl.Trace, key: int) -> None:
    assert len(trace.ops) == 6
    with pytest.raises(MissingKeyError, match=rf"no op {key}: the trace has 6 ops, 0 to 5"):
        trace[key]
    assert key not in trace


@pytest.mark.parametrize("key", [None, 1.5, True, ("relu_1",), b"relu_1"])
def test_other_keys_are_refused(trace: tl.Trace, key: Any) -> None:
    with pytest.raises(InputError, match=f"not by {type(key).__name__}"):
        trace[key]


def test_a_key_that_is_label_and_address_is_ambiguous() -> None:
    class relu(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(x)

    with tl.capture(nn.Identity()) as trace:
        relu()(floats(3))
    for key in ("relu_1", "relu_1:1"):
        with pytest.raises(AmbiguousKeyError, match=rf"{key}.*trace.layers.*trace.modules"):
            trace[key]
        assert key not in trace
    assert trace.layers["relu_1"].type == "relu"
    assert trace.modules["relu_1"].num_calls == 1
    assert trace.ops["relu_1:1"].kind == "call"
    assert trace.module_calls["relu_1:1"].module == trace.modules["relu_1"]


# ---- sequences -----------------------------------------------------------------------------------

SEQUENCES = "ops layers modules module_calls params buffers inputs outputs".split()


@pytest.mark.parametrize("name", SEQUENCES)
def test_a_sequence_behaves_as_one(name: str) -> None:
    trace = tl.trace(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), floats(3, 4))
    items = getattr(trace, name)
    listed = list(items)
    assert len(items) == len(listed) > 0
    assert [items[k] for k in range(len(items))] == listed
    assert items[-1] == listed[-1] and items[-len(items)] == listed[0]
    assert list(items[1:]) == listed[1:] and list(items[::-1]) == listed[::-1] == list(reversed(items))
    assert all(item in items for item in listed)
    assert items.index(listed[-1]) == len(listed) - 1 and items.count(listed[0]) == 1
    by_title = [item for item in listed if item != trace.modules[""]]  # the root's address is empty
    assert [items[item.title] for item in by_title] == by_title
    assert "no such thing" not in items and None not in items
    assert len(set(listed)) == len(listed)
    assert f"({len(listed)} " in repr(items) and listed[0].title in repr(items)
    assert repr(items).endswith("s)") == (len(listed) != 1)


@pytest.mark.parametrize(("name", "noun"), [("ops", "op"), ("params", "parameter"), ("modules", "module")])
def test_a_sequence_names_what_is_near(trace: tl.Trace, name: str, noun: str) -> None:
    items = getattr(trace, name)
    with pytest.raises(MissingKeyError, match=f"no {noun} is called 'zzz'"):
        items["zzz"]
    with pytest.raises(IndexError, match=f"there are {len(items)} {noun}s; 99 is not one of them"):
        items[99]


def test_an_empty_sequence_says_so(trace: tl.Trace) -> None:
    assert list(trace.buffers) == [] and not trace.buffers
    with pytest.raises(MissingKeyError, match="there are no buffers here"):
        trace.buffers["running_mean"]


def test_a_part_has_its_own_members_only(trace: tl.Trace) -> None:
    ops = trace.modules["features"].calls[0].module.children[0].ops
    assert [op.label for op in ops] == ["linear_1:1"]
    assert "linear_1:1" in ops and "linear_2:1" not in ops
    with pytest.raises(MissingKeyError, match="no op is called 'linear_2:1'; nearest: 'linear_1"):
        ops["linear_2:1"]


def test_the_label_of_a_single_pass_layer_names_its_op(trace: tl.Trace) -> None:
    assert trace.ops["linear_1"] == trace.ops["linear_1:1"]


def test_views_are_equal_by_trace_and_index(trace: tl.Trace) -> None:
    other = tl.trace(Features(), floats(3, 4))
    assert trace[1] == trace["relu_1:1"] and hash(trace[1]) == hash(trace["relu_1:1"])
    assert trace[1] != other[1]
    assert trace.ops[0] != trace.layers[0] and trace.modules[0] != trace.module_calls[0]
    assert len({trace[1], trace["relu_1:1"], other[1], trace["relu_1"]}) == 3


@pytest.mark.parametrize(
    "model", [models.SharedByTwoParents, models.TiedWeights], ids=lambda model: model.__name__
)
def test_every_alias_names_the_same_thing(model: type[nn.Module]) -> None:
    x = torch.tensor([[1, 2, 3]]) if model is models.TiedWeights else floats(3, 4)
    trace = tl.trace(model(), x)
    for items in (trace.params, trace.modules):
        assert all(items[address] == item for item in items for address in item.addresses)
    if model is models.SharedByTwoParents:
        assert trace["right.inner"] == trace["left.inner"] and trace["right.inner:2"] == trace["left.inner:2"]
