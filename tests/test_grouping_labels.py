"""Labels, spelling and site keys: what a layer and its passes are called."""

from __future__ import annotations

import linecache

import pytest
import torch
from torch import Tensor

import torchlens as tl
from tests import models
from tests.programs.reading import compiled, computed, floats, op_labels, run_labels, traced

# ---- site keys -----------------------------------------------------------------------------------


def test_passes_in_several_module_calls_share_a_site_key() -> None:
    trace = traced(models.ReusedBlock())
    keys = {layer.layer_label: {op.graph.site_key for op in layer.ops} for layer in trace.layers}
    assert all(len(found) == 1 for found in keys.values())
    assert len(set.union(*keys.values())) == len(keys), "different layers have different keys"


def test_passes_of_a_loop_in_one_module_call_have_keys_of_their_own() -> None:
    trace = traced(models.Looped())
    for label in ("tanh_1", "mul_1"):
        assert len({op.graph.site_key for op in trace[label].ops}) == 3


def test_output_slots_have_site_keys_of_their_own() -> None:
    trace = traced(lambda x: torch.max(x, dim=-1))
    assert trace["max_1"].graph.site_key != trace["max_2"].graph.site_key


def test_site_keys_do_not_depend_on_the_run() -> None:
    model = models.ReusedBlock()
    keys = [[op.graph.site_key for op in traced(model).ops] for _ in range(2)]
    assert keys[0] == keys[1]


# ---- labels and spelling -------------------------------------------------------------------------


def test_a_type_is_numbered_in_capture_order_whatever_its_spelling() -> None:
    trace = traced(lambda x: torch.add(1 + x.add(1), 2).add_(1) + 1)
    assert op_labels(trace) == "add_1:1 radd_1:1 add_2:1 add_3:1 add_4:1"
    assert [op.func_name for op in computed(trace)] == ["add", "__radd__", "add", "add_", "__add__"]
    assert {op.operation for op in computed(trace)} == {"add"}


def test_labels_lead_to_layers_and_ops() -> None:
    trace = traced(models.ReusedBlock())
    assert trace["linear_1"].layer_label == "linear_1" and trace["linear_1:2"].label == "linear_1:2"
    assert trace["linear_1"].ops[1] == trace["linear_1:2"]
    assert trace[0].label == "input_1:1" and trace[-1].label == "output_1:1"


SPELLINGS = [
    ("x = x + 1", "__add__", "add"),
    ("x = 1 + x", "__radd__", "add"),
    ("x = x + y", "__add__", "add"),
    ("x += 1", "__iadd__", "add"),
    ("x = x.add(1)", "add", "add"),
    ("x = torch.add(x, 1)", "add", "add"),
    ("x = x.add_(1)", "add_", "add"),
    ("x = operator.add(x, 1)", "__add__", "add"),
    ("x = x.__add__(1)", "__add__", "add"),
    ("x = sum([x])", "__radd__", "add"),
    ("x = x + k", "__add__", "add"),
    ("x = k + x", "__radd__", "add"),
    ("x = x - 1", "__sub__", "sub"),
    ("x -= y", "__isub__", "sub"),
    ("x = x * 2", "__mul__", "mul"),
    ("x = 2 * x", "__rmul__", "mul"),
    ("x *= 2", "__imul__", "mul"),
    ("x = x / 2", "__truediv__", "div"),
    ("x /= 2", "__itruediv__", "div"),
    ("x = x @ y", "__matmul__", "matmul"),
    ("x = torch.matmul(x, y)", "matmul", "matmul"),
    ("x = -x", "__neg__", "neg"),
    ("x = x < y", "__lt__", None),
    ("x = 1 < x", "__gt__", None),
    ("x = x == y", "__eq__", None),
    ("x = ~(x > 0)", "__invert__", None),
    ("x = x[0]", "__getitem__", None),
    ("x[0] = 1", "__setitem__", None),
    ("x = x.T", "T", None),
    ("x = x.real", "real", None),
    ("x = x.data", "data", None),
    ("x = F.relu(x, inplace=True)", "relu_", None),
    ("x = F.linear(x, y)", "linear", None),
    ("x = F.softmax(x, -1)", "softmax", None),
]


@pytest.mark.parametrize("with_source", [True, False], ids=["source at hand", "no source"])
@pytest.mark.parametrize(
    ("statement", "func_name", "operation"), SPELLINGS, ids=[row[0] for row in SPELLINGS]
)
def test_func_name_is_the_call_as_written(
    statement: str, func_name: str, operation: str | None, with_source: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = f"def run(x, y, k=3):\n    x = x.clone()\n    {statement}\n    return x\n"
    name = f"<spelling {statement}>"
    if with_source:
        monkeypatch.setitem(linecache.cache, name, (len(source), None, source.splitlines(True), name))
    op = computed(traced(compiled(source, name)["run"], floats(4, 4), floats(4, 4)))[-1]
    assert (op.func_name, op.type) == (func_name, func_name.strip("_"))
    assert op.spelling_known
    assert operation is None or op.operation == operation


def test_one_place_may_be_spelled_both_ways() -> None:
    def run(*ts: Tensor) -> Tensor:
        a = 0
        for t in ts:
            a = a + t
        return a

    assert run_labels(run, *floats(3, 4)) == "radd_1:1 add_1:1 add_1:2"


def test_a_spelling_that_cannot_be_told_is_never_guessed() -> None:
    def run(x: Tensor) -> Tensor:
        ks = [1, 2]
        return ks[0] + x

    op = computed(traced(run))[-1]
    assert (op.func_name, op.spelling_known) in [("__radd__", True), ("add", False)]


def test_a_block_numbers_passes_over_all_calls_of_the_model() -> None:
    model = models.Looped()
    x = floats(2, 4)
    with tl.capture(model) as trace:
        x = model(x)
        x = model(x) + 1
    step = " ".join(f"tanh_1:{k} mul_1:{k}" for k in range(1, 7))
    assert op_labels(trace) == f"{step} add_1:1"
