"""A trace that comes from a file has the tables that it had."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import torchlens as tl
from tests.programs.examples import EXAMPLES
from tests.tables.test_collection import SITUATIONS, traced

RUNS: dict[str, Callable[[], Any]] = {
    **{name: lambda name=name: traced(name) for name in EXAMPLES},
    **{
        f"{name}, nothing kept": lambda name=name: traced(name, save=[])
        for name in ("WritesEveryWay", "encoder")
    },
    **SITUATIONS,
}


@pytest.mark.parametrize("run", RUNS)
def test_a_loaded_trace_has_the_same_tables(run: str, tmp_path: Path) -> None:
    trace = RUNS[run]()
    tl.save(trace, tmp_path / "trace")
    loaded = tl.load(tmp_path / "trace")
    for name, table in trace.tables.items():
        assert loaded.tables[name].schema.equals(table.schema, check_metadata=True)
        found, wanted = loaded.tables[name].to_pydict(), table.to_pydict()
        assert [column for column in wanted if found[column] != wanted[column]] == [], name
