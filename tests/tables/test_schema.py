"""Schemas: documented column by column, versioned, and the same after a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

import torchlens as tl
from tests import models
from tests.tables import page
from torchlens.tables.collection import KINDS
from torchlens.tables.schema import SCHEMA_VERSION


@pytest.fixture(scope="module")
def tables() -> Any:
    return tl.trace(models.StackedBlocks(), torch.ones(3, 4)).tables


@pytest.mark.parametrize("name", KINDS)
def test_the_page_documents_every_column(name: str) -> None:
    found = page.section(name).search(page.PATH.read_text(encoding="utf-8"))
    assert found, f"docs/tables.md has no table of the columns of {name}; run python -m tests.tables.page"
    assert found[0].removeprefix(found[1]) == page.rendered(name), "run python -m tests.tables.page"


@pytest.mark.parametrize("name", KINDS)
def test_a_schema_is_what_its_columns_say(tables: Any, name: str) -> None:
    schema = tables[name].schema
    assert schema.names == [column.name for column in KINDS[name].columns]
    for field, column in zip(schema, KINDS[name].columns, strict=True):
        assert field.nullable == column.nullable
        assert field.metadata[b"meaning"].decode() == column.meaning
        assert field.metadata.get(b"unit", b"").decode() == (column.unit or "")


def test_a_meaning_is_a_phrase_and_amounts_have_units() -> None:
    columns = [column for kind in KINDS.values() for column in kind.columns]
    for column in columns:
        assert column.meaning and not column.meaning.endswith(".") and "|" not in column.meaning
        assert (column.unit is not None) == (
            column.name in {"nbytes", "duration_ns", "flops", "macs", "numel"}
        )
    assert {column.unit for column in columns} == {None, "bytes", "ns", "FLOPs", "MACs", "elements"}


def test_a_schema_says_its_version(tables: Any) -> None:
    assert tables.edges.schema.metadata == {
        b"torchlens.table": b"edges",
        b"torchlens.schema_version": str(SCHEMA_VERSION).encode(),
        b"torchlens.version": tl.__version__.encode(),
        b"torchlens.torch_version": torch.__version__.encode(),
        b"torchlens.status": b"complete",
    }


def through_parquet(table: pa.Table, path: Path) -> pa.Table:
    pq.write_table(table, path)
    return pq.read_table(path)


def through_ipc(table: pa.Table, path: Path) -> pa.Table:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_file(file).read_all()


@pytest.mark.parametrize("through", [through_parquet, through_ipc])
@pytest.mark.parametrize("name", KINDS)
def test_a_file_keeps_all(
    tables: Any, name: str, through: Callable[[pa.Table, Path], pa.Table], tmp_path: Path
) -> None:
    table = tables[name]
    back = through(table, tmp_path / "table")
    assert back == table and back.schema == table.schema
    assert back.schema.metadata == table.schema.metadata
    for one, other in zip(back.schema, table.schema, strict=True):
        assert one.nullable == other.nullable
        assert other.metadata.items() <= one.metadata.items()  # Parquet adds a number


def test_numbers_beyond_64_bits_are_null_with_the_reason() -> None:
    huge = nn.Linear(2**24, 2**24, bias=False, device="meta")
    trace = tl.trace(huge, torch.empty(2**17, 2**24, device="meta"))
    row = trace.to_arrow().to_pylist()[1]
    assert trace["linear_1"].flops == 2**66
    assert (row["flops"], row["macs"]) == (None, None)
    assert row["flops_reason"] == f"Its {2**66:,} FLOPs are more than a column of 64 bits holds."
    assert trace.tables.layers["flops"].to_pylist() == [0, None, 0]
    assert row["nbytes"] == 2**43


def test_bytes_beyond_64_bits_are_null() -> None:
    trace = tl.trace(lambda x: x.expand(2**40, 2**22), torch.empty(1, device="meta", dtype=torch.float64))
    assert trace["expand_1"].nbytes == 2**65
    assert trace.to_arrow()["nbytes"].to_pylist()[1] is None
    assert trace.tables.layers["nbytes"].to_pylist()[1] is None
