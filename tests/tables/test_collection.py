"""All tables of all programs: cell by cell what the views say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
import torch
from hypothesis import given, note, settings
from torch import Tensor, nn

import torchlens as tl
from tests.programs import random_source
from tests.programs.examples import EXAMPLES
from tests.programs.random_source import Program
from tests.tables import views
from torchlens.errors import CaptureOpenError, MissingKeyError, NotSavedError

EXPECTED: dict[str, Callable[[Any], list[views.Row]]] = {
    "ops": views.ops,
    "layers": views.layers,
    "edges": views.edges,
    "modules": views.modules,
    "module_calls": views.module_calls,
    "params": views.params,
    "buffers": views.buffers,
    "frames": views.frames,
}


def traced(name: str, **options: Any) -> Any:
    example = EXAMPLES[name]
    torch.manual_seed(0)
    return tl.trace(example.build(), example.inputs(), input_kwargs=example.kwargs(), **options)


def assert_as_the_views_say(trace: Any) -> None:
    for name, expected in EXPECTED.items():
        table = trace.tables[name]
        table.validate(full=True)
        found = table.to_pylist()
        wanted = expected(trace)
        assert len(found) == len(wanted), f"rows of {name}"
        for one, other in zip(found, wanted, strict=True):
            assert one == other, f"{name}: {', '.join(key for key in other if one.get(key) != other[key])}"


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_cell_is_what_the_views_say(name: str) -> None:
    assert_as_the_views_say(traced(name))


@pytest.mark.parametrize("name", ["WritesEveryWay", "CachesKeys", "encoder", "LSTM", "TiedWeights"])
def test_what_is_not_kept_has_its_rows(name: str) -> None:
    trace = traced(name, save=[])
    assert_as_the_views_say(trace)
    whole = traced(name)
    told_apart = ["duration_ns"]
    assert trace.to_arrow().drop_columns(told_apart) == whole.to_arrow().drop_columns(told_apart)


@settings(max_examples=100)
@given(program=random_source.programs(is_module=True))
def test_random_programs(program: Program) -> None:
    note(program.source)
    torch.manual_seed(0)
    assert_as_the_views_say(tl.trace(program.build(), program.inputs()))


class Fails(nn.Module):
    """The second block raises, in the middle of a call."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).relu())


def failed() -> Any:
    model = Fails()
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        with tl.capture(model) as trace:
            model(torch.ones(2, 4))
    return trace


def halted() -> Any:
    return tl.trace(Fails(), torch.ones(2, 4), stop_after="relu_1")


def ran_nothing() -> Any:
    with tl.capture(nn.Linear(2, 2)) as trace:
        pass
    return trace


def two_roots() -> Any:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True))
    with tl.capture({"a": model, "b": nn.Linear(4, 2)}) as trace:
        total = model(torch.ones(3, 4)).sum()
        model(torch.ones(5, 4)) + total
    return trace


class HeldInPlaces(nn.Module):
    """Names that SQL, JSON or a path would take for something else, shared and tied."""

    def __init__(self) -> None:
        super().__init__()
        shared = nn.BatchNorm1d(4)
        self.blocks = nn.ModuleDict(
            {'it\'s "here"; --': shared, "日本\n,\t%s": shared, "a:1": nn.Linear(4, 4)}
        )
        self.blocks["a:1"].weight = nn.Parameter(torch.ones(4, 4, dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks.values():
            x = block(x)
        return x


def test_half_a_character_in_a_name_fails_no_table() -> None:
    model = nn.Sequential()
    model.add_module("\udc80", nn.Linear(4, 4))
    tables = tl.trace(model, torch.ones(1, 4)).tables
    assert tables.modules["address"].to_pylist() == ["", r"\udc80"]
    assert {name: table.num_rows for name, table in tables.items()}["params"] == 2
    assert tables.ops["params"].to_pylist()[1] == [r"\udc80.weight", r"\udc80.bias"]


def odd_tensors(x: Tensor) -> list[Tensor]:
    empty = x[:0]
    sparse = torch.eye(3).to_sparse()
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)])
    return [empty * 2, sparse * 2, nested * 2, x.bfloat16() + 1, x.to(torch.complex64).conj(), x.sum() > 0]


def on_meta() -> Any:
    model = nn.Linear(4, 4, device="meta")
    return tl.trace(model, torch.ones(2, 4, device="meta"))


def changes_shapes_in_place(x: Tensor) -> Tensor:
    y = x.clone()
    y.t_().unsqueeze_(0)
    y.requires_grad_()
    return y.detach_().mul_(2)


SITUATIONS: dict[str, Callable[[], Any]] = {
    "failed": failed,
    "halted": halted,
    "nothing ran": ran_nothing,
    "several root calls and ops outside them": two_roots,
    "hostile names": lambda: tl.trace(HeldInPlaces(), torch.ones(3, 4)),
    "odd tensors": lambda: tl.trace(odd_tensors, torch.ones(3, 3)),
    "meta": on_meta,
    "shapes changed in place": lambda: tl.trace(changes_shapes_in_place, torch.ones(2, 3)),
    "no grad": lambda: tl.trace(
        lambda x: torch.no_grad()(torch.relu)(x) + 1, torch.ones(2, requires_grad=True)
    ),
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_every_run_has_its_tables(situation: str) -> None:
    assert_as_the_views_say(SITUATIONS[situation]())


def test_a_failed_call_has_no_outputs() -> None:
    trace = failed()
    calls = {row["label"]: row for row in trace.tables.module_calls.to_pylist()}
    assert calls["second:1"]["returned"] is False and calls["second:1"]["outputs"] is None
    assert calls["first:1"]["returned"] is True and calls["first:1"]["outputs"] == ["linear_1:1"]
    assert trace.tables.ops.schema.metadata[b"torchlens.status"] == b"failed"
    assert halted().tables.ops.schema.metadata[b"torchlens.status"] == b"halted"


def test_a_run_of_nothing_has_empty_tables_of_the_same_schemas() -> None:
    empty, full = ran_nothing(), traced("TiedWeights")
    assert empty.to_arrow().num_rows == empty.tables.frames.num_rows == 0
    assert empty.tables.params.num_rows == 2
    for name in full.tables:
        assert empty.tables[name].schema == full.tables[name].schema


def test_tables_are_attributes_and_a_mapping() -> None:
    trace = traced("Looped")
    tables = trace.tables
    assert list(tables) == list(EXPECTED) and len(tables) == 8
    assert [
        tables.ops, tables.layers, tables.edges, tables.modules,
        tables.module_calls, tables.params, tables.buffers, tables.frames,
    ] == list(tables.values())  # fmt: skip
    assert trace.to_arrow() is tables.ops
    assert repr(tables) == "<Tables ops, layers, edges, modules, module_calls, params, buffers, frames>"


def test_a_table_that_there_is_not() -> None:
    with pytest.raises(MissingKeyError, match="no table is called 'layer'; nearest: 'layers'"):
        traced("Looped").tables["layer"]


def test_tables_of_an_open_or_freed_trace() -> None:
    model = nn.ReLU()
    with tl.capture(model) as trace:
        model(torch.ones(2))
        with pytest.raises(CaptureOpenError, match="still open"):
            trace.tables
    kept = trace.to_arrow()
    trace.cleanup()
    with pytest.raises(NotSavedError, match="freed this trace"):
        trace.to_arrow()
    assert kept.num_rows == 3


def test_tables_join() -> None:
    """What one table says of another's rows is there, once."""
    trace = traced("TiedWeights")
    tables = trace.tables
    assert isinstance(tables.ops, pa.Table)
    joins = [
        ("ops", "layer", "layers", "layer_label"),
        ("ops", "module", "modules", "address"),
        ("ops", "module_call", "module_calls", "label"),
        ("edges", "parent", "ops", "label"),
        ("edges", "child_index", "ops", "index"),
        ("module_calls", "module", "modules", "address"),
        ("module_calls", "parent", "module_calls", "label"),
        ("modules", "parent", "modules", "address"),
        ("frames", "call_site", "ops", "call_site"),
    ]
    for table, column, other, key in joins:
        found = set(tables[table][column].to_pylist()) - {None}
        keys = tables[other][key].to_pylist()
        assert found and found <= set(keys), f"{table}.{column}"
        assert (other == "ops" and key == "call_site") or len(set(keys)) == len(keys), f"{other}.{key}"


def test_building_tables_leaves_no_cycle() -> None:
    import gc
    import weakref

    trace = traced("Looped")
    tables = list(trace.tables.values())
    reader = weakref.ref(trace._reader)
    gc.collect()
    gc.disable()
    try:
        del trace
        assert reader() is None
    finally:
        gc.enable()
    assert tables[0].num_rows == 8
