"""Whether a trace vouches for its graph: programs with the verdict each must get, and what it proves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import networkx as nx
import pytest
import torch
from torch import Tensor

import torchlens as tl
from tests.programs.last_writers import equal_bits
from tests.programs.origin_program import Model, Program, floats
from tests.programs.origins import PROGRAMS
from tests.programs.reading import lint
from torchlens._values.plain import tensors_in


def inputs() -> tuple[Tensor, Tensor]:
    return floats(0.5), floats(-1.25)


def outputs_of(make: Callable[[], Model], *given: Tensor) -> list[Tensor]:
    torch.manual_seed(0)
    return [tensor.detach().clone() for tensor in tensors_in(make()(*given))]


def traced(make: Callable[[], Model]) -> Any:
    torch.manual_seed(0)
    trace = tl.trace(make(), inputs(), capture=tl.options.CaptureOptions(seed=0))
    lint(trace)
    return trace


def true_dependencies(make: Callable[[], Model]) -> set[tuple[int, int]]:
    """(input, output) pairs of which a change of the one changes the other."""
    expected = outputs_of(make, *inputs())
    found: set[tuple[int, int]] = set()
    for at in range(2):
        given = list(inputs())
        given[at] = given[at] * 1.5 + 0.125
        for slot, (one, other) in enumerate(zip(expected, outputs_of(make, *given), strict=True)):
            if not equal_bits(one, other):
                found.add((at, slot))
    return found


def dependencies(trace: Any) -> set[tuple[int, int]]:
    """(input, output) pairs that the trace's graph connects."""
    inputs = {op.label: at for at, op in enumerate(trace.inputs)}
    return {
        (inputs[above], slot)
        for slot, op in enumerate(trace.outputs)
        for above in nx.ancestors(trace.graph, op.label) & inputs.keys()
    }


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_each_program_gets_its_verdict(program: Program) -> None:
    trace = traced(program.make)
    assert tuple(doubt.name for doubt in trace.provenance.reasons) == program.reasons, str(trace.provenance)
    assert trace.provenance.verified is (not program.reasons)
    if trace.provenance.verified:
        assert true_dependencies(program.make) <= dependencies(trace)
