"""Everything is computed on first use, once, and in whatever order it is asked for."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import torchlens as tl
from tests import models
from tests.programs.reading import floats

QUESTIONS = {
    "labels": lambda t: [op.label for op in t.ops],
    "parents": lambda t: [[p.label for p in op.parents] for op in t.ops],
    "children": lambda t: [[c.label for c in op.children] for op in t.ops],
    "layers": lambda t: [(layer.layer_label, layer.num_passes) for layer in t.layers],
    "values": lambda t: [op.out.tolist() for op in t.ops],
    "graph": lambda t: sorted(t.graph.edges),
    "site keys": lambda t: [op.graph.site_key for op in t.ops],
    "flops": lambda t: [(op.flops, op.flops_reason) for op in t.ops],
    "buffers": lambda t: [[v.label for v in b.versions] for b in t.buffers],
    "modules": lambda t: [(m.address, [op.label for op in m.ops]) for m in t.modules],
}


@pytest.mark.parametrize("name", ["CountsOnTwoLines", "WritesThroughViews"])
def test_answers_do_not_depend_on_the_order_of_questions(name: str) -> None:
    def answers(names: Any) -> dict[str, Any]:
        trace = tl.trace(getattr(models, name)(), floats(3, 4))
        return {question: QUESTIONS[question](trace) for question in names}

    expected = answers(QUESTIONS)
    for shift in range(1, len(QUESTIONS)):
        order = list(itertools.islice(itertools.cycle(QUESTIONS), shift, shift + len(QUESTIONS)))
        assert answers(order) == expected
        assert answers(order[::-1]) == expected


def test_what_is_computed_is_kept() -> None:
    trace = tl.trace(models.Looped(), floats(2, 4))
    reader = trace._reader
    for name in (
        "numbers",
        "chains",
        "layering",
        "lineage",
        "op_labels",
        "site_keys",
        "children",
        "call_labels",
    ):
        assert getattr(reader, name) is getattr(reader, name)
    assert trace["tanh_1:1"].flops is not None
    assert reader.cost(1) is reader.cost(1)


def test_reading_computes_only_what_is_asked() -> None:
    trace = tl.trace(models.Looped(), floats(2, 4))
    computed = vars(trace._reader)
    assert "lineage" not in computed and "layering" not in computed
    trace["tanh_1"]
    assert "layering" in computed and "lineage" not in computed
    trace.graph
    assert "lineage" in computed
