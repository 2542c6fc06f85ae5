"""`save=`: which values are kept, and that nothing else depends on it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import torchlens as tl
from tests.programs.examples import EXAMPLES
from tests.programs.saving import always_kept, assert_kept, assert_same_facts, kept_labels


def run(name: str, **options: Any) -> Any:
    example = EXAMPLES[name]
    torch.manual_seed(0)
    model = example.build()
    torch.manual_seed(1)
    return tl.trace(model, example.inputs(), input_kwargs=example.kwargs(), **options)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_graph_is_complete_when_nothing_is_kept(name: str) -> None:
    full, found = run(name), run(name, save=[])
    assert_same_facts(found, full)
    assert_kept(found, full, tl.selectors.selector_of([], "save"))
    assert found.check(), found.check()


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_module_keeps_what_it_returned(name: str) -> None:
    full = run(name)
    called = [module.address for module in full.modules if module.num_calls]
    found = run(name, save=[tl.module(address) for address in called])
    assert_same_facts(found, full)
    for one, other in zip(found.module_calls, full.module_calls, strict=True):
        assert_same_nested(one.output, other.output)


def assert_same_nested(one: Any, other: Any) -> None:
    ones, others = torch.utils._pytree.tree_leaves(one), torch.utils._pytree.tree_leaves(other)
    for left, right in zip(ones, others, strict=True):
        if isinstance(left, torch.Tensor):
            torch.testing.assert_close(left, right, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", EXAMPLES)
def test_labels_of_one_run_mean_the_same_in_the_next(name: str) -> None:
    full = run(name)
    wanted = [op.label for op in full.ops][::3]
    found = run(name, save=[tl.label(label) for label in wanted])
    assert set(wanted) <= kept_labels(found) <= set(wanted) | always_kept(found)
