"""How a run ended: output, status, error, notes, provenance; and the text of everything."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests import models
from tests.programs.reading import floats
from torchlens.errors import CaptureOpenError, IncompleteError, OverwrittenError, SeveralPassesError

Pair = namedtuple("Pair", "low high")


def test_a_complete_run() -> None:
    trace = tl.trace(models.Looped(), floats(2, 4))
    assert (trace.status, trace.error, trace.notes) == ("complete", None, ())
    assert trace.provenance.verified is True and trace.provenance.verification_reason is None


@pytest.mark.parametrize(
    ("pack", "kind"),
    [
        (lambda a, b: a, Tensor),
        (lambda a, b: (a, b), tuple),
        (lambda a, b: [a, {"x": b}], list),
        (lambda a, b: {"a": a, "n": None}, dict),
        (Pair, Pair),
        (lambda a, b: None, type(None)),
        (lambda a, b: 3.5, float),
        (lambda a, b: "text", str),
        (lambda a, b: (), tuple),
    ],
    ids=["tensor", "tuple", "nested", "dict", "namedtuple", "none", "number", "text", "empty"],
)
def test_the_output_has_its_containers(pack: Any, kind: type) -> None:
    trace = tl.trace(lambda x: pack(x + 1, x * 2), floats(3))
    assert type(trace.output) is kind
    tensors = [op.out for op in trace.outputs]
    assert len(tensors) == str(pack(torch.ones(1), torch.ones(1))).count("tensor")


def test_the_output_is_the_tensor_the_caller_received() -> None:
    given: list[Tensor] = []

    def model(x: Tensor) -> Tensor:
        given.append(x * 2)
        return given[0]

    trace = tl.trace(model, floats(3))
    assert trace.output is given[0] is trace.outputs[0].out


def test_an_output_changed_later_raises() -> None:
    trace = tl.trace(models.Looped(), floats(2, 4))
    trace.output.add_(1)
    with pytest.raises(OverwrittenError, match="the output was changed in place"):
        trace.output


def test_the_output_of_a_block_is_that_of_its_only_root_call() -> None:
    model, x = models.Looped(), floats(2, 4)
    with tl.capture(model) as trace:
        y = model(x)
        y = y + 1
    assert trace.output is trace.module_calls[":1"].output
    assert torch.equal(trace.output + 1, y)
    assert [op.label for op in trace.outputs] == ["output_1:1"]


@pytest.mark.parametrize("calls", [0, 2, 5])
def test_a_block_of_no_or_several_root_calls_has_no_one_output(calls: int) -> None:
    model, inputs = models.Looped(), [floats(2, 4) for _ in range(calls)]
    with tl.capture(model) as trace:
        for x in inputs:
            model(x)
    hint = r'module_calls\[.*":?1".*\]|no module was called in it|module_calls\['
    with pytest.raises(SeveralPassesError, match=rf"{calls} root calls.*({hint})"):
        trace.output
    assert not hasattr(trace, "output")
    assert len(trace.outputs) == calls and len(trace.inputs) == calls


def test_inputs_and_outputs_of_a_block_are_in_order_and_inputs_once() -> None:
    model, x = models.Siamese(), floats(3, 4)
    with tl.capture(model) as trace:
        first = model(x, x + 1)
        second = model(right=x, left=x)
    assert [op.label for op in trace.inputs] == ["input_1:1"]
    assert [torch.equal(op.out, y) for op, y in zip(trace.outputs, (first, second))] == [True, True]


def failed(error: BaseException) -> tl.Trace:
    with pytest.raises(type(error), match="deliberate"), tl.capture(model := models.Raises(error)) as trace:
        model(floats(3, 4))
    error.__traceback__ = None
    return trace


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit, StopIteration, RuntimeError])
def test_a_failed_run(kind: type[BaseException]) -> None:
    trace = failed(kind("deliberate"))
    assert trace.status == "failed"
    assert (trace.error.type_name, trace.error.message) == (kind.__name__, "deliberate")
    assert "raise self.error" in trace.error.traceback
    with pytest.raises(IncompleteError, match="did not return"):
        trace.output
    assert not hasattr(trace, "output") and list(trace.outputs) == []
    assert "failed" in str(trace) and kind.__name__ in str(trace)


def test_an_open_block_can_not_be_read() -> None:
    with tl.capture(models.Looped()) as trace:
        for read in (
            lambda: trace.ops,
            lambda: trace[0],
            lambda: trace.output,
            lambda: trace.status,
            lambda: len(trace.ops),
        ):
            with pytest.raises(CaptureOpenError, match="still open; read the trace after"):
                read()
        assert not hasattr(trace, "graph")
        assert repr(trace) == "<Trace, its capture block is open>"
    assert len(trace.ops) == 0


def test_an_empty_block() -> None:
    with tl.capture(nn.Linear(4, 4)) as trace:
        pass
    assert (len(trace.ops), trace.status, len(trace.params)) == (0, "complete", 2)
    assert len(trace.graph) == 0 and list(trace.layers) == []
    str(trace)


def test_an_unknown_origin_makes_a_trace_unverified() -> None:
    trace = tl.trace(lambda x: x + torch.Tensor([1.0, 2.0, 3.0]), floats(3))
    assert trace.provenance.verified is False and trace.provenance.verification_reason == "unknown_origin"
    assert [(doubt.count, doubt.ops) for doubt in trace.provenance.reasons] == [(1, ("source_1:1",))]
    assert str(trace.provenance).startswith("unverified (unknown_origin): A tensor came from a place")
    assert [op.name for op in trace.ops if op.kind == "source"] == ["unknown"]


def test_the_options_of_a_run() -> None:
    import platform

    trace = tl.trace(models.Looped(), floats(2, 4), capture=tl.options.CaptureOptions(seed=5, max_copied=100))
    options = trace.options
    assert (options.seed, options.max_copied) == (5, 100)
    assert options.grouping_policy["detector"] == "callsite_v1"
    assert (options.torch_version, options.python_version) == (torch.__version__, platform.python_version())


@pytest.mark.parametrize(
    "name",
    [
        "ReusedBlock",
        "CountsInPlace",
        "TransformInLoop",
        "SeveralOutputs",
        "WritesThroughViews",
        "CustomBackward",
    ],
)
def test_everything_has_a_text(name: str) -> None:
    trace = tl.trace(getattr(models, name)(), floats(3, 4))
    things = [*trace.ops, *trace.layers, *trace.modules, *trace.module_calls, *trace.params, *trace.buffers]
    for thing in things:
        assert str(thing) and repr(thing).startswith("<") and repr(thing).endswith(">")
    for op in trace.ops:
        assert all(repr(arg) for arg in op.args)
    assert str(trace) and repr(trace.ops) and str(trace.summary())
    assert name in str(trace)
