"""Random programs: same bits with and without a capture, edges and values as a slow reference knows them."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import assume, given, note, settings
from hypothesis import strategies as st
from torch import Tensor

import torchlens as tl
from tests.programs import random_source
from tests.programs.last_writers import Call, LastWriters, Writer, equal_bits, last_writers, tensors_in
from tests.programs.random_source import Program
from tests.programs.reading import lint
from torchlens._trace.reference import references_in


def run_plainly(program: Program) -> tuple[list[Tensor], tuple[Tensor, ...]]:
    inputs = program.inputs()
    torch.manual_seed(0)
    return program.build()(*inputs), inputs


def run_by_reference(program: Program) -> tuple[LastWriters, list[set[Writer]]]:
    inputs, run = program.inputs(), program.build()
    torch.manual_seed(0)
    _, watched, writers = last_writers(run, dict(zip(("x", "y"), inputs, strict=True)), *inputs)
    return watched, writers


def run_under_capture(program: Program) -> tuple[Any, tuple[Tensor, ...]]:
    inputs = program.inputs()
    trace = tl.trace(program.build(), inputs, capture=tl.options.CaptureOptions(seed=0))
    return trace, inputs


def assert_same_bits(found: Any, expected: Any) -> None:
    for k, (one, other) in enumerate(zip(tensors_in(found), tensors_in(expected), strict=True)):
        assert equal_bits(one, other), f"tensor {k} differs"
        assert one.stride() == other.stride() and one.requires_grad == other.requires_grad


class Numbering:
    """Tells the reference's calls by number and the trace's ops by label, op by op in order."""

    def __init__(self, trace: Any, calls: list[Call]) -> None:
        self.ops = [op for op in trace.ops if op.kind == "call"]
        note("trace: " + " ".join(op.label for op in self.ops))
        note("reference: " + " ".join(f"{k}:{call.name}" for k, call in enumerate(calls)))
        assert len(self.ops) == len(calls), "the trace has more or fewer ops than the reference"
        self.numbers: dict[str, Writer] = {op.label: k for k, op in enumerate(self.ops)}
        self.numbers |= {op.label: name for op, name in zip(trace.inputs, ("x", "y"), strict=True)}

        if "h" in trace.buffers:
            versions = trace.buffers["h"].versions
            self.numbers |= {op.label: f"h{n}" if n else "h" for n, op in enumerate(versions)}

    def writers(self, op: Any) -> set[Writer]:
        """The op's parents by number."""
        return {self.numbers[parent.label] for parent in op.parents}


def assert_same_edges(trace: Any, watched: LastWriters, returned: list[set[Writer]]) -> None:
    numbering = Numbering(trace, watched.calls)
    for k, (op, call) in enumerate(zip(numbering.ops, watched.calls, strict=True)):
        assert op.output_slot == call.slot, f"{k}: {op.label} against {call.name}"
        assert numbering.writers(op) == call.parents, f"parents of {k}: {op.label} ({call.name})"
    for op, writers in zip(trace.outputs, returned, strict=True):
        assert numbering.writers(op) == writers, f"parents of {op.label}"
    versions = trace.buffers["h"].versions if watched.versions else ()
    for op, writers in zip(versions[1:], watched.versions, strict=True):
        assert numbering.writers(op) == writers, f"parents of {op.label}"


def assert_same_values(trace: Any, calls: list[Call], backwards: bool) -> None:
    ops = [op for op in trace.ops if op.kind == "call"]
    pairs = list(zip(ops, calls, strict=True))
    for op, call in reversed(pairs) if backwards else pairs:
        assert equal_bits(op.out, call.out), f"{op.label}.out"
        found = argument_values(op)
        assert len(found) == len(call.args), f"{op.label}.args"
        for k, (one, other) in enumerate(zip(found, call.args, strict=True)):
            assert equal_bits(one, other), f"tensor {k} of {op.label}.args"


def argument_values(op: Any) -> list[Tensor]:
    return [reference.out for reference in references_in([op.args, op.kwargs])]


def assert_observed_faithfully(program: Program, backwards: bool) -> None:
    note(program.source)
    expected, inputs = run_plainly(program)
    watched, returned = run_by_reference(program)
    calls = watched.calls
    assume(all(call.out.numel() for call in calls))  # an empty tensor covers no element that someone wrote
    trace, traced_inputs = run_under_capture(program)
    lint(trace)
    assert_same_bits(trace.output, expected)
    assert_same_bits(traced_inputs, inputs)
    assert_same_edges(trace, watched, returned)
    assert_same_values(trace, calls, backwards)
    assert trace.check(), trace.check()
    if program.setting.requires_grad:
        assert_same_gradients(gradients(traced_inputs, trace.output), gradients(inputs, expected))


def gradients(inputs: Any, outputs: Any) -> list[Tensor | None] | str:
    """Gradients of the outputs' squares, or what torch says where a write has destroyed what they need."""
    wanted = [t for t in inputs if t.requires_grad]
    try:
        roots = [(t * t).sum() for t in outputs if t.requires_grad]
        return list(torch.autograd.grad(sum(roots), wanted, allow_unused=True)) if roots and wanted else []
    except RuntimeError as error:
        return str(error).partition(", which is output")[0]  # a view's node may have been made anew


def assert_same_gradients(found: list[Tensor | None] | str, expected: list[Tensor | None] | str) -> None:
    if isinstance(found, str) or isinstance(expected, str):
        assert found == expected
        return
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        assert one is None or equal_bits(one, other)


@settings(max_examples=150)
@given(program=random_source.programs(is_module=False), backwards=st.booleans())
def test_a_function_is_observed_faithfully(program: Program, backwards: bool) -> None:
    assert_observed_faithfully(program, backwards)


@settings(max_examples=150)
@given(program=random_source.programs(is_module=True), backwards=st.booleans())
def test_a_module_with_a_buffer_is_observed_faithfully(program: Program, backwards: bool) -> None:
    assert_observed_faithfully(program, backwards)
