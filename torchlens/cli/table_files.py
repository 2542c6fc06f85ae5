"""A table as a file: Parquet, Arrow, CSV or JSON."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from io import BufferedIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from torchlens._arrow import write_ipc, write_parquet
from torchlens._files.durable import UNFINISHED
from torchlens.cli.printing import spelled
from torchlens.cli.table_forms import Form
from torchlens.errors import UnwritablePathError

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS: Final = 4096
"""Rows that are written in one go."""


def write_file(table: pa.Table, path: Path, form: Form, advance: Callable[[int], None]) -> None:
    """Write a table to a path, whole or not at all; a file that is there is replaced, folders are made.

    `advance` is told the rows that were written, as they are.
    """
    try:
        with _opened(path) as file:
            write_table(table, file, form, advance)
    except OSError as error:
        raise UnwritablePathError(f"{path} cannot be written: {error.strerror or error}") from error


def write_table(table: pa.Table, file: BufferedIOBase, form: Form, advance: Callable[[int], None]) -> None:
    """Write a table to an open file."""
    if form == "parquet":
        write_parquet(table, file)
        advance(table.num_rows)
    elif form == "arrow":
        write_ipc(table, file)
        advance(table.num_rows)
    else:
        texts = _csv(table) if form == "csv" else _json(table)
        for text, rows in texts:
            file.write(text.encode())
            advance(rows)


@contextmanager
def _opened(path: Path) -> Generator[BufferedIOBase]:
    """A file that takes the path's place when the body ends; a pipe or device is written to as it is."""
    path = path.resolve()
    if path.exists() and not path.is_file():
        with open(path, "wb") as file:
            yield file
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(errno.ENOTDIR, f"{path.parent} is no folder") from error
    unfinished = path.with_name(path.name + UNFINISHED)
    try:
        with open(unfinished, "wb") as file:
            yield file
        os.replace(unfinished, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(unfinished)
        raise


def _rows(table: pa.Table) -> Iterator[list[dict[str, Any]]]:
    """The rows, a few thousand at a time."""
    for batch in table.to_batches(max_chunksize=_ROWS):
        yield batch.to_pylist()


def _csv(table: pa.Table) -> Iterator[tuple[str, int]]:
    yield _lines([table.column_names]), 0
    for rows in _rows(table):
        yield _lines([[_cell(cell) for cell in row.values()] for row in rows]), len(rows)


def _lines(rows: list[list[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _cell(cell: object) -> object:
    if isinstance(cell, bool):
        return str(cell).lower()
    return json.dumps(cell) if isinstance(cell, list) else cell


def _json(table: pa.Table) -> Iterator[tuple[str, int]]:
    """An array of objects, a line each; numbers that JSON lacks are the strings NaN, Infinity, -Infinity."""
    opening = "[\n"
    for rows in _rows(table):
        yield opening + ",\n".join(json.dumps(_finite(row), allow_nan=False) for row in rows), len(rows)
        opening = ",\n"
    yield ("[" if opening == "[\n" else "\n") + "]\n", 0


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    return {name: spelled(cell) if type(cell) is float else cell for name, cell in row.items()}
