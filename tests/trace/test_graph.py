"""The networkx graph, and that nothing it touches is kept alive."""

from __future__ import annotations

import gc
import weakref

import networkx
import pytest
import torch

import torchlens as tl
from tests import models
from tests.programs.reading import floats


def test_nodes_carry_plain_data() -> None:
    graph = tl.trace(models.ReusedBlock(), floats(2, 4)).graph
    assert isinstance(graph, networkx.DiGraph)
    node = dict(graph.nodes["linear_1:2"])
    assert node.pop("duration_ns") > 0
    assert node.pop("line").startswith("linear.py:")
    assert node == {
        "kind": "call",
        "type": "linear",
        "func_name": "linear",
        "layer": "linear_1",
        "pass_number": 2,
        "module": "block.first",
        "module_call": "block.first:2",
        "shape": (2, 4),
        "dtype": "torch.float32",
        "nbytes": 32,
        "params": ("block.first.weight", "block.first.bias"),
        "buffers": (),
        "flops": 2 * 2 * 4 * 4,
    }
    assert networkx.is_directed_acyclic_graph(graph)
    assert list(networkx.topological_sort(graph)) and next(iter(graph)) == "input_1:1"


@pytest.mark.parametrize(
    "name",
    ["SeveralOutputs", "CountsInPlace", "TransformInLoop", "TiedWeights", "WritesThroughViews"],
)
def test_nodes_say_what_the_ops_say(name: str) -> None:
    x = torch.tensor([[1, 2]]) if name == "TiedWeights" else floats(3, 4)
    trace = tl.trace(getattr(models, name)(), x)
    for op in trace.ops:
        node = trace.graph.nodes[op.label]
        assert [param.address for param in op.params] == list(node["params"])
        assert [buffer.address for buffer in op.buffers] == list(node["buffers"])
        assert (op.flops, op.duration_ns, op.nbytes) == (node["flops"], node["duration_ns"], node["nbytes"])
        assert node["module_call"] == (op.module_call.label if op.module_call is not None else None)
        assert node["line"] == (str(op.call_site[-1]) if op.call_site else None)


def test_edges_carry_every_position() -> None:
    graph = tl.trace(lambda x: torch.cat([x + x, x]), floats(3)).graph
    edges = {(a, b): data["positions"] for a, b, data in graph.edges(data=True)}
    assert edges == {
        ("input_1:1", "add_1:1"): ("0", "1"),
        ("input_1:1", "cat_1:1"): ("0.1",),
        ("add_1:1", "cat_1:1"): ("0.0",),
        ("cat_1:1", "output_1:1"): ("0",),
    }


def test_the_graph_is_frozen_and_made_once() -> None:
    trace = tl.trace(models.Looped(), floats(2, 4))
    graph = trace.graph
    assert graph is trace.graph and networkx.is_frozen(graph)
    with pytest.raises(networkx.NetworkXError, match="Frozen graph can't be modified"):
        graph.add_edge("input_1:1", "tanh_1:3")
    copy = networkx.DiGraph(graph)
    copy.remove_node("tanh_1:1")
    assert "tanh_1:1" in graph


def test_the_graph_outlives_the_trace() -> None:
    graph = tl.trace(models.Looped(), floats(2, 4)).graph
    assert networkx.has_path(graph, "input_1:1", "output_1:1")


def read_everything(trace: tl.Trace) -> None:
    list(trace.graph.edges), trace.graph.degree, trace.graph.nodes
    for op in trace.ops:
        (
            op.parents,
            op.children,
            op.label,
            op.args,
            op.kwargs,
            op.layer,
            op.module,
            op.reads,
            op.flops,
            op.call_site,
        )
        op.out, op.gradient_edge, op.graph, repr(op)
    for layer in trace.layers:
        layer.parents, layer.children, layer.params, repr(layer)
    for module in trace.modules:
        module.layers, module.children, repr(module)
    for call in trace.module_calls:
        call.args, call.kwargs, call.output, call.inputs, call.outputs
    for buffer in trace.buffers:
        buffer.initial_value, buffer.final_value
    trace.output, trace.summary(), str(trace)


@pytest.mark.parametrize(
    "name", ["ReusedBlock", "WritesThroughViews", "CountsInPlace", "TransformInLoop", "ReassignsBuffer"]
)
def test_a_trace_that_was_read_is_freed_without_the_collector(name: str) -> None:
    model = getattr(models, name)()
    gc.collect()
    gc.disable()
    try:
        trace = tl.trace(model, floats(3, 4))
        read_everything(trace)
        kept = set(map(id, model.buffers()))
        values = [weakref.ref(op.out) for op in trace.ops if op.kind == "call" and id(op.out) not in kept]
        reader = weakref.ref(trace._reader)
        del trace
        assert reader() is None
        assert not any(value() is not None for value in values)
    finally:
        gc.enable()


def test_a_cleaned_trace_frees_its_tensors() -> None:
    gc.collect()
    gc.disable()
    try:
        trace = tl.trace(models.Looped(), floats(2, 4))
        trace.graph
        value = weakref.ref(trace["tanh_1:2"].out)
        trace.cleanup()
        assert value() is None
    finally:
        gc.enable()
    with pytest.raises(tl.errors.NotSavedError, match=r"trace.cleanup\(\) has freed this trace"):
        trace.graph
    assert not hasattr(trace, "ops")


def test_a_cleaned_trace_says_so() -> None:
    trace = tl.trace(models.Looped(), floats(2, 4))
    trace.cleanup()
    assert repr(trace) == str(trace) == "<Trace, freed by cleanup()>"
