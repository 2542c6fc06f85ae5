"""What a test reads from a trace, and what holds for every trace."""

from __future__ import annotations

import operator
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchlens as tl


class AsForward(nn.Module):
    """The function as the forward of a root module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def floats(*shape: int) -> Tensor:
    return torch.linspace(-1, 1, torch.Size(shape).numel()).reshape(shape)


def compiled(source: str, name: str) -> dict[str, Any]:
    """The names that running the source defines, as if it stood in the file `name`."""
    namespace: dict[str, Any] = {"torch": torch, "F": F, "operator": operator}
    exec(compile(source, name, "exec"), namespace)
    return namespace


def traced(model: Callable[..., Any], *inputs: Any) -> Any:
    """The linted trace of one run; without inputs, on two rows of four numbers."""
    trace = tl.trace(model, inputs or (floats(2, 4),))
    lint(trace)
    return trace


def computed(trace: Any) -> list[Any]:
    return [op for op in trace.ops if op.kind not in ("input", "output")]


def op_labels(trace: Any) -> str:
    """Labels of all that ran, in capture order, which shows layers, passes and their order at once."""
    return " ".join(op.label for op in computed(trace))


def run_labels(function: Callable[..., Any], *inputs: Any) -> str:
    """`op_labels` of a function, which are the same when it is a root module's forward."""
    plain = op_labels(traced(function, *inputs))
    wrapped = op_labels(traced(AsForward(function), *inputs))
    assert plain == wrapped
    return plain


def passes(trace: Any) -> dict[str, int]:
    """Number of passes by layer label, inputs and outputs left out."""
    return {
        layer.layer_label: layer.num_passes
        for layer in trace.layers
        if not (layer.is_input or layer.is_output)
    }


def passes_of(trace: Any, *types: str) -> dict[str, int]:
    """`passes` of the layers of these types only."""
    return {label: count for label, count in passes(trace).items() if label.rpartition("_")[0] in types}


def addresses(params: Any) -> list[str]:
    return [param.address for param in params]


def parent_labels(op: Any) -> list[str]:
    return [parent.label for parent in op.parents]


def lint(trace: Any) -> None:
    """Raise where a trace contradicts itself."""
    labels = [op.label for op in trace.ops]
    repeated = [label for label, count in Counter(labels).items() if count > 1]
    assert repeated == [], "labels that two ops share"
    assert [op.index for op in trace.ops] == list(range(len(labels)))
    lint_passes(trace)
    lint_edges(trace)


def lint_passes(trace: Any) -> None:
    numbers = defaultdict(list)
    for op in trace.ops:
        numbers[op.layer.layer_label].append(op.pass_number)
        assert op.label == f"{op.layer.layer_label}:{op.pass_number}"
        assert op.type == op.func_name.strip("_"), f"{op.label} is called {op.func_name}"
        assert op.spelling_known or not op.func_name.startswith("__"), f"{op.label}: a guessed spelling"
    counts = {layer.layer_label: layer.num_passes for layer in trace.layers}
    assert list(counts) == list(numbers), "layers come in the order of their first pass"
    for label, found in numbers.items():
        assert found == list(range(1, counts[label] + 1)), f"passes of {label}"
    by_type = defaultdict(list)
    for label in counts:
        kind, _, number = label.rpartition("_")
        by_type[kind].append(int(number))
    assert all(found == list(range(1, len(found) + 1)) for found in by_type.values()), (
        "layer numbers have gaps"
    )
    assert all(layer.num_passes == 1 for layer in trace.layers if layer.is_input or layer.is_output)


def lint_edges(trace: Any) -> None:
    children = defaultdict(list)
    for op in trace.ops:
        names = parent_labels(op)
        assert len(set(names)) == len(names), f"{op.label} names a parent twice"
        assert all(parent.index < op.index for parent in op.parents), f"{op.label} has a later parent"
        for name in names:
            children[name].append(op.label)
    for op in trace.ops:
        assert [child.label for child in op.children] == children[op.label], f"children of {op.label}"
    edges = {(name, op.label) for op in trace.ops for name in parent_labels(op)}
    assert set(trace.graph.edges) == edges, "the graph has other edges than the ops"
    assert set(trace.graph.nodes) == {op.label for op in trace.ops}
