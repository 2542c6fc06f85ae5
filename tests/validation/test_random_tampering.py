"""In random programs, one edge added or dropped at random is caught."""

from __future__ import annotations

from hypothesis import assume, given, note, settings
from hypothesis import strategies as st

import torchlens as tl
from tests.programs import random_source
from tests.programs.random_source import Program


def traced(program: Program) -> tl.Trace:
    note(program.source)
    trace = tl.trace(program.build(), program.inputs(), capture=tl.options.CaptureOptions(seed=0))
    assume(all(op.out.numel() for op in trace.ops))  # no element, no edge
    return trace


@settings(max_examples=60)
@given(program=random_source.programs(is_module=False), data=st.data())
def test_a_dropped_edge_is_caught(program: Program, data: st.DataObject) -> None:
    trace = traced(program)
    edges = trace._reader.lineage.parents
    candidates = [op for op, parents in enumerate(edges) if parents]
    assume(candidates)
    op = data.draw(st.sampled_from(candidates))
    at = data.draw(st.integers(0, len(edges[op]) - 1))
    others = {row for row in trace._reader.ops_of_row(trace._reader.numbers.rows[op]) if row != op}
    assume(not any(edges[op][at] in edges[other] for other in others))  # its sisters still know it
    dropped = edges[op][at]
    note(f"{trace._reader.op_labels[op]} loses {dropped}")
    edges[op] = (*edges[op][:at], *edges[op][at + 1 :])
    report = trace.check()
    unseen = any(finding.about == trace._reader.op_labels[op] for finding in report.unchecked)
    assert not report or unseen


@settings(max_examples=60)
@given(program=random_source.programs(is_module=False), data=st.data())
def test_an_added_edge_is_caught(program: Program, data: st.DataObject) -> None:
    trace = traced(program)
    edges = trace._reader.lineage.parents
    candidates = [op for op, parents in enumerate(edges) if parents]
    assume(candidates)
    op = data.draw(st.sampled_from(candidates))
    position, _ = data.draw(st.sampled_from(edges[op]))
    older = [other for other in range(op) if (position, other) not in edges[op]]
    assume(older)
    added = data.draw(st.sampled_from(older))
    made = trace._reader.numbers.rows[added], trace._reader.numbers.rows[op]
    assume(made[0] != made[1])  # another output of the same call
    note(f"{trace._reader.op_labels[op]} gets {trace._reader.op_labels[added]} at {position}")
    edges[op] = (*edges[op], (position, added))
    report = trace.check()
    assert not report
