"""Frames of pandas and polars: types that fit, no copies, and what is said where a library is missing."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

import torchlens as tl
from tests import models
from torchlens.errors import MissingKeyError, MissingLibraryError
from torchlens.tables.collection import KINDS


@pytest.fixture(scope="module")
def trace() -> tl.Trace:
    return tl.trace(models.SeveralOutputs(), torch.ones(3, 4))


@pytest.mark.parametrize("name", KINDS)
def test_a_frame_holds_what_the_table_holds(trace: Any, name: str) -> None:
    rows = trace.tables[name].to_pylist()
    assert trace.to_polars(name).to_dicts() == rows
    frame = trace.to_pandas(name)
    assert list(frame.columns) == trace.tables[name].column_names
    back = pa.Table.from_pandas(frame, preserve_index=False).to_pylist()
    assert back == rows


def test_pandas_columns_are_categories_or_backed_by_arrow(trace: Any) -> None:
    frame = trace.to_pandas()
    for column in KINDS["ops"].columns:
        kind = frame[column.name].dtype
        assert isinstance(kind, pd.CategoricalDtype if column.type == "category" else pd.ArrowDtype)
    assert frame["flops"].dtype == pd.ArrowDtype(pa.int64())
    assert list(frame["shape"].iloc[0]) == [3, 4]
    assert frame["flops"].isna().any() and frame["flops"].sum() == sum(op.flops or 0 for op in trace.ops)


def test_pandas_does_what_its_users_do(trace: Any) -> None:
    ops, layers = trace.to_pandas(), trace.to_pandas("layers")
    assert ops.groupby("type", observed=True)["nbytes"].sum()["unbind"] == 48
    assert ops.query("kind == 'call' and output_slot == 0")["label"].tolist() == [
        "split_1:1", "max_1:1", "topk_1:1", "unbind_1:1",
    ]  # fmt: skip
    joined = ops.merge(layers, left_on="layer", right_on="layer_label", suffixes=("", "_of_layer"))
    assert (joined["nbytes"] == joined["nbytes_of_layer"]).all() and len(joined) == len(ops)
    assert ops["flops"].to_numpy(np.float64, na_value=np.nan).dtype == np.float64


def test_pandas_copies_nothing_that_is_backed_by_arrow(trace: Any) -> None:
    table, frame = trace.to_arrow(), trace.to_pandas()
    for name in ("nbytes", "label", "duration_ns", "requires_grad", "parents"):
        there = pa.chunked_array(frame[name].array.__arrow_array__())
        assert address(there) == address(table[name]), name


def address(column: Any) -> list[int | None]:
    return [buffer and buffer.address for chunk in column.chunks for buffer in chunk.buffers()]


def test_polars_types(trace: Any) -> None:
    schema = trace.to_polars().schema
    types = {
        "category": pl.String,
        "string": pl.String,
        "bool": pl.Boolean,
        "int32": pl.Int32,
        "int64": pl.Int64,
    }
    types |= {"list<int64>": pl.List(pl.Int64), "list<string>": pl.List(pl.String)}
    for column in KINDS["ops"].columns:
        assert schema[column.name] == types[column.type], column.name


def test_polars_joins_labels_and_addresses(trace: Any) -> None:
    ops = trace.to_polars()
    assert ops.join(trace.to_polars("layers"), left_on="layer", right_on="layer_label").height == ops.height
    edges = ops.explode("parents").drop_nulls("parents").join(ops, left_on="parents", right_on="label")
    assert edges.height == trace.tables.edges.num_rows


def test_a_table_that_there_is_not(trace: Any) -> None:
    with pytest.raises(MissingKeyError, match="no table is called 'op'; nearest: 'ops'"):
        trace.to_pandas("op")


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_missing_library_is_named(trace: Any, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    convert = {"pandas": trace.to_pandas, "polars": trace.to_polars}[library]
    says = rf"trace\.to_{library}\(\) needs {library}, which is not installed: pip install {library}"
    with pytest.raises(MissingLibraryError, match=says) as raised:
        convert()
    assert isinstance(raised.value, ImportError) and isinstance(raised.value.__cause__, ImportError)
    assert trace.to_arrow().num_rows == len(trace.ops)


def test_only_what_is_asked_for_is_imported() -> None:
    code = """
import sys, torch, torchlens as tl
trace = tl.trace(torch.nn.ReLU(), torch.ones(2))
trace.tables
print([name for name in ("pyarrow", "pandas", "polars") if name in sys.modules])
trace.to_arrow()  # pyarrow itself looks for pandas
print("polars" in sys.modules)
"""
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert found.stdout == "[]\nFalse\n"
