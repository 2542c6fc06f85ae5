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


def packed_gru(x: Tensor) -> Any:
    packed = torch.nn.utils.rnn.pack_sequence([x.sin(), x[:2].sin()])
    return torch.nn.GRU(4, 5)(packed, x.cos().new_zeros(1, 2, 5))


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
    "method where": (lambda x: x.cos().where(x > 0, x.sin()), ["self", "condition", "other"]),
    "reflected pow": (lambda x: x.sin().__rpow__(x.cos()), ["self", "other"]),
    "repeat_interleave": (
        lambda x: torch.repeat_interleave(x, (x[0] > 9).long() + 1, 1),
        ["self", "repeats"],
    ),
    "_foreach_add": (lambda x: torch._foreach_add([x.sin()], [x.cos()]), ["self[0]", "other[0]"]),
    "packed gru": (packed_gru, ["data", "batch_sizes", "hx", *(f"params[{at}]" for at in range(4))]),
}


@pytest.mark.parametrize("name", CALLS)
def test_arguments_have_the_names_of_the_schema_or_the_signature(name: str, tmp_path: Path) -> None:
    function, expected = CALLS[name]
    live = tl.trace(function, floats(3, 4))
    tl.save(live, tmp_path / "run")
    for trace in (live, tl.load(tmp_path / "run")):
        op = [op for op in trace.ops if name.split()[-1] in op.func_name][-1]
        positions = [
            position
            for parent in op.parents
            for position in trace.graph.edges[parent.label, op.label]["positions"]
        ]
        assert [argument_name(op, position) for position in positions] == expected


def test_operators_of_others_have_names_of_their_own(tmp_path: Path) -> None:
    library = torch.library.Library("torchlens_arguments", "DEF")
    library.define("where(Tensor left, Tensor right) -> Tensor")  # aten has another of that name
    library.impl("where", lambda left, right: left + right, "CompositeExplicitAutograd")
    operator = torch.ops.torchlens_arguments.where
    live = tl.trace(lambda x: operator.default(operator(x, x), x), floats(3, 4))
    tl.save(live, tmp_path / "run")
    for trace, names in ((live, ["left", "right"]), (tl.load(tmp_path / "run"), ["0", "1"])):
        for op in trace.layers["where_1"].ops:
            assert [argument_name(op, position) for position in ("0", "1")] == names


def test_what_has_no_name_is_told_by_its_position() -> None:
    op = tl.trace(lambda x: x.sin(), floats(3, 4)).ops[1]
    assert argument_name(op, "7") == "7"
    assert argument_name(op, "0.2.key") == "self[2].key"
    assert argument_name(op, "given.1") == "given[1]"
