"""A table as a file: what each form holds is what the table holds, and no half of a file is left."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from torchlens._arrow import Column, build
from torchlens.cli.table_files import write_file
from torchlens.cli.table_forms import FORMS, Form, form_of
from torchlens.errors import OptionError, UnwritablePathError

COLUMNS = (
    Column("label", "string", "a text"),
    Column("type", "category", "a word"),
    Column("shape", "list<int64>", "sizes", nullable=True),
    Column("parents", "list<string>", "labels"),
    Column("flops", "int64", "a number", nullable=True),
    Column("share", "float64", "a part"),
    Column("ok", "bool", "a truth"),
)
ROWS = {
    "label": ['a "quoted", one', "two\nlines", "×"],
    "type": ["relu", "relu", "linear"],
    "shape": [[2, 3], [], None],
    "parents": [["input_1:1", 'x"y'], [], ["a"]],
    "flops": [2**62, None, 0],
    "share": [0.1, math.nan, math.inf],
    "ok": [True, False, True],
}


@pytest.fixture
def table() -> pa.Table:
    return build(COLUMNS, ROWS, {"made.by": "a test"})


def written(table: pa.Table, path: Path, form: Form) -> Path:
    told: list[int] = []
    write_file(table, path, form, told.append)
    assert sum(told) == table.num_rows
    assert list(path.parent.iterdir()) == [path]
    return path


def test_parquet_and_arrow_give_the_same_table_back(table: pa.Table, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    back = pq.read_table(written(table, tmp_path / "t.parquet", "parquet"))
    assert back.to_pylist()[0] == table.to_pylist()[0] and back.column_names == table.column_names
    os.unlink(tmp_path / "t.parquet")
    with pa.ipc.open_file(written(table, tmp_path / "t.arrow", "arrow")) as file:
        read = file.read_all()
    assert read.schema.equals(table.schema, check_metadata=True)
    assert read.num_rows == 3 and read["parents"].equals(table["parents"])


def test_csv_has_lists_as_json_and_gaps_as_nothing(table: pa.Table, tmp_path: Path) -> None:
    path = written(table, tmp_path / "t.csv", "csv")
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] for row in rows] == ROWS["label"]
    assert [row["shape"] and json.loads(row["shape"]) for row in rows] == [[2, 3], [], ""]
    assert [json.loads(row["parents"]) for row in rows] == ROWS["parents"]
    assert [row["flops"] for row in rows] == [str(2**62), "", "0"]
    assert [row["ok"] for row in rows] == ["true", "false", "true"]
    assert [row["share"] for row in rows] == ["0.1", "nan", "inf"]
    assert list(pd.read_csv(path)["type"]) == list(pl.read_csv(path)["type"]) == ROWS["type"]


def test_json_is_valid_whatever_the_numbers(table: pa.Table, tmp_path: Path) -> None:
    text = written(table, tmp_path / "t.json", "json").read_text()
    rows = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert [row["share"] for row in rows] == [0.1, "NaN", "Infinity"]
    assert [row["shape"] for row in rows] == ROWS["shape"]
    assert len(text.splitlines()) == len(rows) + 2


@pytest.mark.parametrize("form", FORMS)
def test_tables_without_rows_and_with_many(form: Form, tmp_path: Path) -> None:
    readers: dict[Form, Callable[[Path], int]] = {
        "parquet": lambda path: len(pd.read_parquet(path)),
        "arrow": lambda path: len(pd.read_feather(path)),
        "csv": lambda path: len(pd.read_csv(path)),
        "json": lambda path: len(json.loads(path.read_text())),
    }
    for count in (0, 1, 10_000):
        path = tmp_path / f"t{count}.{form}"
        write_file(build(COLUMNS[:1], {"label": ["x"] * count}, {}), path, form, lambda rows: None)
        assert readers[form](path) == count


@pytest.mark.parametrize("form", FORMS)
def test_a_file_is_whole_or_as_it_was(table: pa.Table, form: Form, tmp_path: Path) -> None:
    path = tmp_path / "old"
    path.write_text("old")

    def fails(rows: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_file(table, path, form, fails)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_a_link_is_followed_and_a_pipe_is_written_to(table: pa.Table, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_file(table, tmp_path / "link", "csv", lambda rows: None)
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").is_file()
    write_file(table, Path(os.devnull), "csv", lambda rows: None)
    assert not Path(os.devnull).is_file()


@pytest.mark.parametrize("name", ["", "file/below.csv", "file/further/below.csv"])
def test_a_path_that_cannot_be_written(table: pa.Table, name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnwritablePathError, match="cannot be written: "):
        write_file(table, tmp_path / name, "csv", lambda rows: None)


@pytest.mark.parametrize(
    ("name", "form"), [("parquet", "parquet"), ("pq", "parquet"), ("CSV", "csv"), ("feather", "arrow")]
)
def test_forms_by_name_and_ending(name: str, form: Form) -> None:
    assert form_of(name) == form


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("xlsx", "there is no form 'xlsx'; tables are written as parquet, csv, json, arrow"),
        ("", "no ending that"),
    ],
)
def test_no_such_form(name: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        form_of(name)
