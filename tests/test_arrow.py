"""Columns of Arrow tables, in each of the forms that cells come in."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import get_args

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchlens._arrow import Cells, Coded, Column, ColumnType, Joined, build, coded, is_category, schema_of

WORDS = st.sampled_from(["", "relu", "add", "日本", "a'b"])


def column(kind: ColumnType, cells: Cells) -> Sequence[object]:
    table = build([Column("c", kind, "what it is", nullable=True)], {"c": cells}, {})
    table.validate(full=True)
    return table["c"].to_pylist()


@given(st.lists(st.none() | WORDS))
def test_coded_cells_are_the_cells(cells: list[str | None]) -> None:
    for kind in ("string", "category"):
        assert column(kind, coded(cells)) == column(kind, cells) == cells


@given(st.lists(st.none() | st.lists(st.integers(-1, 5), max_size=3).map(tuple)))
def test_coded_lists(cells: list[tuple[int, ...] | None]) -> None:
    assert column("list<int64>", coded(cells)) == [None if cell is None else list(cell) for cell in cells]


@given(st.lists(st.lists(st.integers(0, 3), max_size=4)))
def test_joined_lists(cells: list[list[int]]) -> None:
    words = ["a", "b", "c", "d"]
    joined = Joined(Coded(list(chain.from_iterable(cells)), words), [len(cell) for cell in cells])
    assert column("list<string>", joined) == [[words[code] for code in cell] for cell in cells]


@given(st.lists(st.none() | st.integers(0, 4)), st.lists(st.none() | WORDS, min_size=5, max_size=5))
def test_codes_of_codes(outer: list[int | None], inner: list[str | None]) -> None:
    """What a row says of an op: the op's row, then what is different among the rows."""
    expected = [None if at is None else inner[at] for at in outer]
    assert column("category", Coded(outer, coded(inner))) == expected


def test_a_dictionary_has_each_word_once() -> None:
    table = build([Column("c", "category", "")], {"c": Coded([0, 1, 2, 0], ["a", "b", "a"])}, {})
    (chunk,) = table["c"].chunks
    assert chunk.dictionary.to_pylist() == ["a", "b"] and chunk.to_pylist() == ["a", "b", "a", "a"]


def test_a_schema_says_what_its_columns_are() -> None:
    columns = [Column("n", "int64", "how long", True, "ns"), Column("kind", "category", "which")]
    schema = schema_of(columns, {"of": "tests"})
    assert schema.metadata == {b"of": b"tests"}
    assert schema.field("n").metadata == {b"meaning": b"how long", b"unit": b"ns"}
    assert schema.field("kind").metadata == {b"meaning": b"which"}
    assert [field.nullable for field in schema] == [True, False]
    assert [is_category(field.type) for field in schema] == [False, True]


@pytest.mark.parametrize("kind", get_args(ColumnType))
def test_a_table_without_rows_has_its_types(kind: ColumnType) -> None:
    columns = [Column("c", kind, "")]
    table = build(columns, {"c": []}, {})
    assert table.schema == schema_of(columns, {}) and table.num_rows == 0
    assert build(columns, {"c": Coded([], [])}, {}) == table


def test_lists_cannot_stand_in_a_column_of_numbers() -> None:
    with pytest.raises(AssertionError, match="a column of int64 holds no lists"):
        column("int64", Joined([1], [1]))


def test_a_number_that_does_not_fit_is_no_other_number() -> None:
    with pytest.raises((OverflowError, pa.ArrowInvalid), match=r"int too (large|big)"):
        column("int64", [2**63])


@pytest.mark.parametrize("kind", ["string", "category"])
def test_text_that_utf_8_lacks_is_escaped(kind: ColumnType) -> None:
    assert column(kind, ["a", None, "\udc80/é.py"]) == ["a", None, r"\udc80/é.py"]
    assert column("list<string>", [["a", "\ud800"], None, ()]) == [["a", r"\ud800"], None, []]
