"""What arguments are called."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import torchlens as tl
from tests.programs.examples import floats
from torchlens.drawing.arguments import argument_name

CALLS: dict[str, tuple[Callable[[Tensor], Any], list[str]]] = {
    "add": (lambda x: x + x.sin(), ["self", "other"]),
    "radd": (lambda x: 1 + x, ["self"]),
    "cat": (lambda x: torch.cat([x, x.sin()]), ["tensors[0]", "tensors[1]"]),
    "where": (lambda x: torch.where(x > 0, x, x.sin()), ["condition", "self", "other"]),
    "conv1d": (lambda x: F.conv1d(x[None], x[None].sin()[..., :1]), ["input", "weight"]),
    "attention": (
        lambda x: F.scaled_dot_product_attention(x[None], x[None].sin(), value=x[None].cos()),
        ["query", "key", "value"],
    ),
    "setitem": (lambda x: x.clone().__setitem__(0, x[1]), ["self", "value"]),
    "einsum": (lambda x: torch.einsum("ij,ij->i", x, x.sin()), ["tensors[0]", "tensors[1]"]),
}


@pytest.mark.parametrize("name", CALLS)
def test_arguments_have_the_names_of_the_schema_or_the_signature(name: str, tmp_path: Path) -> None:
    function, expected = CALLS[name]
    live = tl.trace(function, floats(3, 4))
    tl.save(live, tmp_path / "run")
    for trace in (live, tl.load(tmp_path / "run")):
        op = next(op for op in trace.ops if name in (op.type, op.func_name) or name in op.func_name)
        positions = [
            position
            for parent in op.parents
            for position in trace.graph.edges[parent.label, op.label]["positions"]
        ]
        assert [argument_name(op, position) for position in positions] == expected


def test_what_has_no_name_is_told_by_its_position() -> None:
    op = tl.trace(lambda x: x.sin(), floats(3, 4)).ops[1]
    assert argument_name(op, "7") == "7"
    assert argument_name(op, "0.2.key") == "self[2].key"
    assert argument_name(op, "given.1") == "given[1]"
