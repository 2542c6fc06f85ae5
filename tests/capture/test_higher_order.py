"""Control-flow operators: one op each, run as torch runs them without a capture."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import torchlens as tl
from tests.programs.agreement import agrees
from tests.programs.reading import floats, op_labels, parent_labels

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without")

WEIGHT = floats(3, 3)
BIAS = floats(8, 8)


def chosen(x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 100, lambda x: x.sin() @ WEIGHT, lambda x: x.cos(), (x * 1,)) + 1


def chosen_by_python(x: Tensor) -> Tensor:
    return torch.cond(True, lambda x: x.sin() + 1, lambda x: x.cos(), (x * 1,)) + 1


def chosen_within(x: Tensor) -> Tensor:
    def inner(x: Tensor) -> Tensor:
        return torch.cond(x.max() > 1, lambda x: x + 1, lambda x: x - 1, (x,))

    return torch.cond(x.sum() > -100, inner, lambda x: x.cos(), (x * 1,)) + 1


def repeated(x: Tensor) -> Tensor:
    return while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y.sin() @ WEIGHT), (torch.tensor(0), x * 1))[1]


def scanned(x: Tensor) -> Tensor:
    return scan(lambda carry, row: (carry + row, carry * row), x[0] * 0, x * 1)[1] + 1


def scanned_in_a_tree(x: Tensor) -> Tensor:
    return associative_scan(lambda a, b: a + b, x * 1, dim=0, combine_mode="generic") + 1


def mapped(x: Tensor) -> Tensor:
    return map_rows(lambda row, y: row.sin() + y, x * 1, WEIGHT[0]) + 1


PROGRAMS: dict[str, tuple[Callable[[Tensor], Any], str, bool]] = {
    "cond": (chosen, "sum_1:1 gt_1:1 mul_1:1 source_1:1 cond_1:1 add_1:1", True),
    "cond of a bool": (chosen_by_python, "mul_1:1 sin_1:1 add_1:1 add_2:1", True),
    "cond in cond": (chosen_within, "sum_1:1 gt_1:1 mul_1:1 cond_1:1 add_1:1", True),
    "while_loop": (repeated, "tensor_1:1 mul_1:1 source_1:1 while_loop_1:1 while_loop_2:1", False),
    "scan": (scanned, "getitem_1:1 mul_1:1 mul_2:1 scan_1:1 scan_2:1 add_1:1", True),
    "map": (mapped, "mul_1:1 source_1:1 getitem_1:1 map_impl_1:1 add_1:1", True),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_operator_is_one_op(name: str) -> None:
    program, labels, _ = PROGRAMS[name]
    trace = agrees(lambda: program, floats(4, 3))
    assert op_labels(trace) == labels
    kinds = {op.kind for op in trace.ops if op.type in ("cond", "while_loop", "scan", "map_impl")}
    assert kinds <= {"boundary"}


@pytest.mark.parametrize("name", [name for name, (_, _, gradients) in PROGRAMS.items() if gradients])
def test_gradients(name: str) -> None:
    program, labels, _ = PROGRAMS[name]
    assert op_labels(agrees(lambda: program, floats(4, 3), grad=True)) == labels


def test_a_scan_in_a_tree_is_seen_step_by_step() -> None:
    trace = agrees(lambda: scanned_in_a_tree, floats(4, 3), grad=True)
    assert trace.layers["vmap_1"].num_passes == 2


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(3, 3)
        self.other = nn.Linear(3, 3)
        self.register_buffer("scale", torch.full((3,), 2.0))

    def forward(self, x: Tensor) -> Tensor:
        y = x * 2
        taken = torch.cond(
            x.sum() > 100, lambda x: self.one(x) + y, lambda x: self.other(x) * self.scale, (x * 1,)
        )
        return taken + 1


@pytest.mark.parametrize("with_gradients", [False, True], ids=["no grad", "grad"])
def test_what_branches_close_over_is_read_by_the_op(with_gradients: bool) -> None:
    trace = agrees(Branches, floats(4, 3), grad=with_gradients)
    op = trace["cond_1:1"]
    assert parent_labels(op) == ["gt_1:1", "mul_2:1", "mul_1:1", "buffer_1:1"]
    assert [param.address for param in op.params] == ["one.weight", "one.bias", "other.weight", "other.bias"]
    assert trace.modules["one"].num_calls == 0  # modules inside are no calls


@pytest.mark.parametrize("name", ["cond", "scan"])
def test_an_operator_inside_vmap_belongs_to_it(name: str) -> None:
    def inner(row: Tensor) -> Tensor:
        if name == "cond":
            return torch.cond(row.sum() > 0, torch.sin, torch.cos, (row,))
        return scan(lambda carry, item: (carry + item, carry * item), row[0] * 0, row * 1)[1]

    trace = agrees(lambda: lambda x: torch.func.vmap(inner)(x) + 1, floats(4, 3))
    assert op_labels(trace) == "vmap_1:1 add_1:1"


def test_one_that_raises_is_no_op() -> None:
    def program(x: Tensor) -> Tensor:
        with pytest.raises(Exception, match="size mismatch"):
            torch.cond(x.sum() > -100, lambda x: x @ torch.ones(7), lambda x: x.cos(), (x * 1,))
        return x + 1

    assert op_labels(tl.trace(program, floats(4, 3))) == "sum_1:1 gt_1:1 mul_1:1 add_1:1"


def attention(q: Tensor) -> Tensor:
    return flex_attention(q * 1, q, q) + 1


def biased(q: Tensor) -> Tensor:
    return flex_attention(q * 1, q, q, score_mod=lambda score, b, h, i, j: score + BIAS[i, j]) + 1


def masked(q: Tensor) -> Tensor:
    mask = create_block_mask(lambda b, h, i, j: i >= j, 1, 2, 8, 8, device="cpu")
    return flex_attention(q * 1, q, q, block_mask=mask) + 1


@pytest.mark.parametrize("program", [attention, biased, masked], ids=lambda p: p.__name__)
def test_flex_attention_is_one_op(program: Callable[[Tensor], Tensor]) -> None:
    trace = agrees(lambda: program, floats(1, 2, 8, 4))
    op = trace["flex_attention_1:1"]
    assert op.kind == "boundary"
    assert parent_labels(op)[:2] == ["mul_1:1", "input_1:1"]
    named = [parent for parent in op.parents if (parent.name or "").endswith("BIAS")]
    assert len(named) == (program is biased)


# ---- dynamo, which torch loads for these ---------------------------------------------------------

FRESH = """
import sys, torch, torchlens as tl
assert "torch._dynamo" not in sys.modules
weight = torch.ones(3, 3, requires_grad=True)
def cond(x):
    return torch.cond(x.sum() > 100, lambda x: x.sin() @ weight, lambda x: x.cos() @ weight, (x * 1,))
def compiled(x):
    return torch.compile(lambda x: x.sin() * 2, backend="eager")(x)
trace = tl.trace({program}, torch.ones(2, 3))
assert trace.provenance.verified, trace.provenance
assert torch.equal(trace.output, {program}(torch.ones(2, 3)))
print(*(op.label for op in trace.ops))
dynamo = sys.modules["torch._dynamo"]
assert type(dynamo.__loader__).__module__.startswith("_frozen"), dynamo.__loader__
assert dynamo.__spec__.loader is dynamo.__loader__
assert not any("torchlens" in type(finder).__module__ for finder in sys.meta_path)
assert dynamo.eval_frame._stance.stance == "default"
"""


@pytest.mark.parametrize(
    ("program", "labels"),
    [
        ("cond", "input_1:1 sum_1:1 gt_1:1 mul_1:1 source_1:1 cond_1:1 output_1:1"),
        ("compiled", "input_1:1 sin_1:1 mul_1:1 output_1:1"),
    ],
)
def test_a_forward_that_loads_dynamo(program: str, labels: str) -> None:
    root = Path(__file__).parents[2]
    run = subprocess.run(
        [sys.executable, "-c", FRESH.replace("{program}", program)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=root,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == labels
