"""Which rows a tree is shown as. Folding hides rows, never amounts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests import models
from tests.programs.examples import EXAMPLES, floats
from torchlens.report.folding import MOST_ROWS, fold_tree
from torchlens.report.rows import Row


class Block(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x)))


class Widens(nn.Module):
    """Grows by one column at each step, so that no two blocks have the same sizes."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(4 + step) for step in range(steps))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = torch.cat([block(x), x[..., :1]], dim=-1)
        return x


def rows_of(model: Any, *inputs: Tensor, fold: bool = True, depth: int | None = None) -> Row:
    return fold_tree(tl.trace(model, inputs).summary().tree, fold=fold, depth=depth)[0]


def texts(row: Row) -> list[str]:
    return [" ".join(filter(None, (r.name, r.type, r.labels, r.runs, r.note))) for r in row.items]


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        pytest.param(
            nn.Sequential(*(Block() for _ in range(4))),
            ["0 Block", "1 … 3 Block 3 like 0"],
            id="blocks in succession",
        ),
        pytest.param(nn.Sequential(Block(), Block()), ["0 Block", "1 Block like 0"], id="two blocks"),
        pytest.param(
            nn.Sequential(Block(), Block(), Block()), ["0 Block", "1, 2 Block 2 like 0"], id="three blocks"
        ),
        pytest.param(
            nn.Sequential(Block(), nn.Flatten(), Block()),
            ["0 Block", "1 Flatten flatten_1", "2 Block like 0"],
            id="blocks apart",
        ),
        pytest.param(
            nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)),
            ["0 Linear linear_1", "1 Linear linear_2", "2 Linear linear_3"],
            id="few siblings of one row each",
        ),
        pytest.param(
            nn.Sequential(*(nn.Linear(4, 4) for _ in range(5))),
            ["0 Linear linear_1", "1 … 4 Linear 4 like 0"],
            id="many siblings of one row each",
        ),
        pytest.param(
            nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4), nn.Linear(4, 8), nn.Linear(8, 4)),
            ["0 Linear linear_1", "1 Linear linear_2", "2 Linear linear_3", "3 Linear linear_4"],
            id="other sizes",
        ),
        pytest.param(
            models.StackedBlocks(),
            ["blocks.0 ResidualBlock", "blocks.1, blocks.2 ResidualBlock 2 like blocks.0"],
            id="a module list",
        ),
    ],
)  # fmt: skip
def test_like_siblings_share_a_row(model: nn.Module, expected: list[str]) -> None:
    assert texts(rows_of(model, floats(3, 4))) == expected


def test_layers_that_compute_nothing_share_a_row() -> None:
    def reshapes(x: Tensor) -> Tensor:
        left, right = x.reshape(2, 6).t().chunk(2)
        return torch.relu(left + right.view_as(left)).contiguous()

    shown = texts(rows_of(reshapes, floats(3, 4)))
    assert shown == ["reshape_1 … view_as_1 5 free", "add_1", "relu_1", "contiguous_1"]


def test_the_only_layer_that_computes_stands_on_its_modules_row() -> None:
    class Flattens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(floats(4, 2))

        def forward(self, x: Tensor) -> Tensor:
            return (x.reshape(-1, 4) @ self.weight).view(3, 1, 2)

    row = rows_of(nn.Sequential(Flattens()), floats(3, 1, 4))
    assert texts(row) == ["0 Flattens matmul_1 +2 free"]
    assert row.items[0].shape == "3×1×2"


def test_a_shared_module_is_opened_once() -> None:
    rows = rows_of(models.SharedByTwoParents(), floats(3, 4))
    assert [texts(row) for row in rows.items] == [
        ["inner Linear linear_1 ×1/2"],
        ["inner Linear = left.inner"],
    ]


def test_runs_of_module_and_layer_are_told_apart_where_they_differ() -> None:
    class Loops(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            for _ in range(3):
                x = torch.tanh(x)
            return x

    loops, tanh = Loops(), nn.Tanh()
    (row,) = rows_of(nn.Sequential(loops, loops), floats(2)).items
    assert row.runs == "×2 · ×6"
    (row,) = rows_of(nn.Sequential(tanh, tanh), floats(2)).items
    assert row.runs == "×2"
    (row,) = rows_of(nn.Sequential(loops), floats(2)).items
    assert row.runs == "×3"


@pytest.mark.parametrize(
    ("depth", "expected"),
    [
        pytest.param(0, "ReusedBlock 4 layers", id="the root alone"),
        pytest.param(1, "ReusedBlock / block ResidualBlock ×3 4 layers", id="one module below it"),
    ],
)
def test_depth(depth: int, expected: str) -> None:
    top = rows_of(models.ReusedBlock(), floats(3, 4), depth=depth)
    shown = [" ".join(filter(None, (row.name, row.type, row.runs, row.note))) for row in top.walk()]
    assert " / ".join(shown) == expected


def test_without_folding_every_layer_has_a_row() -> None:
    model = nn.Sequential(*(Block() for _ in range(4)))
    trace = tl.trace(model, floats(3, 4))
    rows = fold_tree(trace.summary().tree, fold=False, depth=None)[0]
    shown = [row.labels for row in rows.walk() if row.labels]
    assert shown == [layer.layer_label for layer in trace.layers if layer.ops[0].kind == "call"]
    assert not any(row.hides for row in rows.walk())


def test_a_long_tree_folds_across_sizes_before_it_closes() -> None:
    steps = 60
    top, depth = fold_tree(tl.trace(Widens(steps), floats(2, 4)).summary().tree, fold=True, depth=None)
    assert depth is None
    assert len(list(top.walk())) < MOST_ROWS
    assert f"blocks.1 … blocks.{steps - 1} Block {steps - 1} like blocks.0 in other sizes" in texts(top)


def test_a_tree_that_stays_long_is_opened_less_deep() -> None:
    blocks = [
        nn.Sequential(*(nn.Linear(4, 4) if n % 2 else nn.Tanh() for n in range(k))) for k in range(2, 40)
    ]
    top, depth = fold_tree(
        tl.trace(nn.Sequential(*blocks), floats(2, 4)).summary().tree, fold=True, depth=None
    )
    assert depth == 1
    assert len(top.items) == len(blocks)


def test_of_a_crowd_the_first_and_last_are_shown() -> None:
    namespace: dict[str, Any] = {"torch": torch}
    lines = "".join(f"    x = torch.tanh(x) * {n}.0\n" for n in range(100))
    exec(f"def crowd(x):\n{lines}    return x", namespace)
    rows = rows_of(namespace["crowd"], floats(3))
    names = texts(rows)
    assert names[:2] == ["tanh_1", "mul_1"]
    assert names[-1] == "mul_100"
    assert "155 more rows" in names
    assert sum(row.amounts.flops for row in rows.items) == rows.amounts.flops == 600


def modules(row: Row) -> Iterator[Row]:
    return (inner for inner in row.walk() if inner.items)


@pytest.mark.parametrize("fold", [True, False], ids=["folded", "whole"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_rows_lose_no_amount(name: str, fold: bool) -> None:
    example = EXAMPLES[name]
    trace = tl.trace(example.build(), example.inputs(), input_kwargs=example.kwargs())
    rows = fold_tree(trace.summary().tree, fold=fold, depth=None)[0]
    assert rows.amounts.flops == sum(op.flops or 0 for op in trace.ops)
    for row in modules(rows):
        assert row.amounts.flops == sum(item.amounts.flops for item in row.items)
        assert row.amounts.nanoseconds == sum(item.amounts.nanoseconds for item in row.items)
        assert row.amounts.params >= sum(item.amounts.params for item in row.items)
