"""Rows, what is missing, the table and the page of a comparison."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests import models
from tests.programs.examples import EXAMPLES
from tests.programs.reading import floats
from torchlens.comparing.columns import COLUMNS
from torchlens.comparing.comparison import Comparison
from torchlens.report.text import as_text


class Scaled(nn.Module):
    """The factor, the dtype and the number of outputs vary."""

    def __init__(self, factor: float = 2.0, extra: bool = False) -> None:
        super().__init__()
        self.factor, self.extra = factor, extra

    def forward(self, x: Tensor) -> Tensor:
        y = torch.sin(x)
        y = y * self.factor
        if self.extra:
            y = torch.cos(y)
        return y


def compared(a: Any, b: Any) -> Comparison:
    return tl.Bundle({"a": a, "b": b}).compare("a", "b")


def by_label(found: Comparison) -> dict[str, Any]:
    return {row.a.label: row for row in found}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_same_run_twice_is_equal(name: str) -> None:
    example = EXAMPLES[name]
    options = tl.options.CaptureOptions(seed=0)
    runs = []
    for _ in range(2):
        torch.manual_seed(0)
        model = example.build().eval()
        runs.append(tl.trace(model, example.inputs(), input_kwargs=example.kwargs(), capture=options))
    found = compared(*runs)
    assert found and found.equal, found
    assert not found.differing and not found.only_in_a and not found.only_in_b
    assert {row.a.type for row in found.not_compared} <= {"empty"}


def test_rows_and_amounts() -> None:
    x = torch.tensor([0.5, 1.0])
    a, b = tl.trace(Scaled(2.0), x), tl.trace(Scaled(2.5, extra=True), x)
    found = compared(a, b)
    row = by_label(found)["mul_1:1"]
    assert not found and row.by == "site" and row.equal is False
    assert row.difference.max_rel == pytest.approx(0.2)
    assert row.difference.max_abs == pytest.approx(float((torch.sin(x) * 0.5).max()))
    assert row.difference.cosine == pytest.approx(1)
    assert by_label(found)["sin_1:1"].equal
    assert [op.label for op in found.only_in_b] == ["cos_1:1"] and not found.only_in_a
    assert [row.a.label for row in found.differing] == ["mul_1:1", "output_1:1"]
    assert len(found) == 4


def test_a_change_of_dtype_and_of_shape() -> None:
    x = floats(2, 4)
    a, b = tl.trace(Scaled(), x), tl.trace(Scaled(), x.double())
    row = by_label(compared(a, b))["sin_1:1"]
    assert (row.a.dtype, row.b.dtype, row.equal) == ("float32", "float64", False)
    assert 0 < row.difference.max_abs < 1e-7
    row = by_label(compared(a, tl.trace(Scaled(), floats(3, 4))))["sin_1:1"]
    assert (row.a.shape, row.b.shape, row.equal) == ((2, 4), (3, 4), None)
    assert row.reason == "shapes differ: 2×4 and 3×4"


def test_a_missing_value_is_a_row_with_its_reason() -> None:
    x = floats(2, 4)
    a, b = tl.trace(Scaled(), x, save=["sin_1"]), tl.trace(Scaled(), x)
    found = compared(a, b)
    rows = by_label(found)
    assert rows["sin_1:1"].equal and rows["output_1:1"].equal  # the output of a run is kept in any case
    assert found.equal is False
    gone = {row.a.label: row.reason for row in found.not_compared}
    assert set(gone) >= {"input_1:1"} and all(
        reason.startswith("a: the value was not") for reason in gone.values()
    )
    mirror = compared(b, a)
    assert all(row.reason.startswith("b: ") for row in mirror.not_compared)


def test_an_overwritten_value_and_a_value_on_meta() -> None:
    x = floats(2, 4)
    a, b = tl.trace(Scaled(), x), tl.trace(Scaled(), x.clone())
    x.add_(1)
    assert "changed in place" in str(by_label(compared(a, b))["input_1:1"].reason)
    found = compared(tl.trace(Scaled(), x.to("meta")), b)
    assert {row.reason for row in found} == {"a value on meta has no elements"}


def test_in_place_chains_are_compared_version_by_version() -> None:
    a, b = (tl.trace(models.WritesEveryWay(), floats(3, 4) + shift) for shift in (0, 1))
    again = compared(a, tl.trace(models.WritesEveryWay(), floats(3, 4)))
    assert again
    raw = {row.a.label: row.reason for row in again.not_compared}
    assert raw == {"empty_1:1": "the value is memory that nothing had written yet"}
    found = [row for row in compared(a, b) if row.difference]
    assert len(found) == len(a.ops) - 1
    assert all(
        (row.equal is False) == bool((a.ops[row.a.label].out != b.ops[row.b.label].out).any())
        for row in found
    )


def test_a_failed_and_a_halted_run() -> None:
    model, x = models.Raises(ValueError("no")), floats(2, 4)
    with tl.capture(model) as whole, pytest.raises(ValueError, match="no"):
        model(x)
    with tl.capture(model) as again, pytest.raises(ValueError, match="no"):
        model(x)
    assert compared(whole, again)
    halted = tl.trace(models.StackedBlocks().eval(), floats(3, 4), stop_after="blocks.0")
    assert [op.label for op in compared(halted, halted).only_in_a] == []


def test_blocks_with_two_root_calls() -> None:
    model = nn.Linear(4, 4)
    traces = []
    for count in (2, 3):
        with tl.capture(model) as t:
            x = floats(2, 4)
            for _ in range(count):
                x = model(x)
        traces.append(t)
    found = compared(*traces)
    assert [op.label for op in found.only_in_b] == ["linear_1:3", "output_3:1"]
    assert not found.differing and not found.only_in_a


def test_the_table_has_every_row_and_says_what_its_columns_are() -> None:
    x = floats(2, 4)
    found = compared(tl.trace(Scaled(), x), tl.trace(Scaled(3.0, extra=True), x))
    table = found.to_arrow()
    assert table.num_rows == len(found) + 1
    assert table.column("status").to_pylist() == ["equal", "equal", "differs", "differs", "only in b"]
    assert (
        table.column("label_a").to_pylist()[-1] is None
        and table.column("label_b").to_pylist()[-1] == "cos_1:1"
    )
    assert table.column("max_abs").to_pylist() == [
        *(row.difference.max_abs for row in found if row.difference), None
    ]  # fmt: skip
    assert table.column("shape_a").to_pylist()[0] == [2, 4]
    assert table.schema.metadata[b"a"] == b"a"
    for column in COLUMNS:
        assert table.schema.field(column.name).metadata[b"meaning"].decode() == column.meaning
    empty = compared(tl.trace(lambda: None, ()), tl.trace(lambda: None, ())).to_arrow()
    assert empty.num_rows == 0 and empty.schema == table.schema


def test_the_page() -> None:
    x = torch.tensor([0.5, 1.0])
    found = tl.Bundle(
        {"before": tl.trace(Scaled(2.0), x), "after": tl.trace(Scaled(2.5, extra=True), x)}
    ).compare("before", "after")
    assert as_text(found, 80) == (
        "before, after · not equal\n"
        "in both       4 ops: 2 equal, 2 differ\n"
        "only in after 1: cos_1:1\n"
        "\n"
        "op that differs  shape   max abs   max rel     cosine\n"
        "mul_1:1          2      4.21e-01  2.00e-01   1.000000\n"
        "output_1:1       2      2.19e+00  1.30e+00  -0.418318"
    )
    assert str(found) == repr(found) and "<pre" in found._repr_html_()
    narrow = as_text(found, 30)
    assert max(map(len, narrow.splitlines())) <= 30 and "mul_1:1" in narrow
    as_text(found, 80, encoding="ascii").encode("ascii")


def test_the_page_of_many_rows_counts_what_it_leaves_out() -> None:
    a, b = (tl.trace(lambda x: [x + k for k in range(40)], floats(2) + shift) for shift in (0, 1))
    page = str(compared(a, b))
    assert "and 57 more that differ; .differing lists them" in page
    assert page.count("add_1:") == 23


def test_hostile_names_are_text() -> None:
    name = "[red]x[/red]"
    model = nn.Sequential()
    model.add_module(name, nn.Tanh())
    other = nn.Sequential(nn.Sigmoid())
    a, b = tl.trace(model, floats(2)), tl.trace(other, floats(2))
    page = str(tl.Bundle({"[bold]a": a, "b" * 90: b}).compare("[bold]a", "b" * 90))
    assert f"tanh_1:1 in {name}" in page and "[bold]a" in page
