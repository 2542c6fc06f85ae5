"""Random programs under random selectors: what is kept is what was meant, and nothing else changes."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given, note, settings
from hypothesis import strategies as st

import torchlens as tl
from tests.programs import random_source
from tests.programs.random_source import Program
from tests.programs.saving import assert_kept, assert_same_facts


def simple_selectors(full: Any) -> st.SearchStrategy[tl.selectors.Selector]:
    """Selectors that mean something in this run, or nearly."""
    ops = list(full.ops)
    names = sorted({op.func_name for op in ops} | {op.operation for op in ops})
    composites = sorted({name for op in ops for name in op.composites})
    lines = sorted({(f.file, f.line) for op in ops for f in op.call_site if f.line is not None})
    labels = sorted({op.label for op in ops} | {op.layer.layer_label for op in ops})
    choices = [
        st.sampled_from(names).map(tl.func),
        st.sampled_from(labels).map(tl.label),
        st.sampled_from(sorted({m.address for m in full.modules})).map(tl.module),
        st.sampled_from(sorted({m.address for m in full.modules})).map(tl.in_module),
        st.just(tl.output()),
        st.integers(0, 8).map(lambda n: tl.where(lambda op: sum(op.shape) >= n)),
    ]
    choices += [st.sampled_from(composites).map(tl.in_func)] if composites else []
    choices += [st.sampled_from(lines).map(lambda place: tl.line(f"{place[0]}:{place[1]}"))] if lines else []
    return st.one_of(choices)


def selectors(full: Any) -> st.SearchStrategy[tl.selectors.Selector]:
    return st.recursive(
        simple_selectors(full),
        lambda inner: st.one_of(
            inner.map(lambda a: ~a),
            st.tuples(inner, inner).map(lambda pair: pair[0] & pair[1]),
            st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1]),
        ),
        max_leaves=4,
    )


def traced(program: Program, **options: Any) -> Any:
    return tl.trace(program.build(), program.inputs(), **options)


def assert_keeps_what_is_meant(program: Program, data: st.DataObject) -> None:
    note(program.source)
    torch.manual_seed(0)
    full = traced(program)
    selector = data.draw(selectors(full))
    note(f"{selector}")
    found = traced(program, save=selector)
    assert_same_facts(found, full)
    assert_kept(found, full, selector)
    assert found.check(), found.check()


@settings(max_examples=60)
@given(random_source.programs(is_module=False), st.data())
def test_of_functions(program: Program, data: st.DataObject) -> None:
    assert_keeps_what_is_meant(program, data)


@settings(max_examples=60)
@given(random_source.programs(is_module=True), st.data())
def test_of_modules(program: Program, data: st.DataObject) -> None:
    assert_keeps_what_is_meant(program, data)
