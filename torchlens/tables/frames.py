"""Call sites by number, and the Python frames of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from torchlens._arrow import Cells, Column, build, coded
from torchlens._keys.chains import Frame
from torchlens._trace.reader import TraceReader
from torchlens.report.torch_files import is_of_torch
from torchlens.tables.schema import metadata_of

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: Final = (
    Column("call_site", "int32", "number of the call site, which `ops.call_site` has"),
    Column("depth", "int32", "place in the call site, counted inwards; 0 for the outermost frame"),
    Column("file", "category", "path of the source file, as Python had it"),
    Column("function", "category", "qualified name of the function; plain on Python 3.10"),
    Column("line", "int32", "first line of the call, from 1; null where Python does not know", True),
    Column("end_line", "int32", "its last line", True),
    Column("column", "int32", "where it begins in its first line, in UTF-8 bytes from 0", True),
    Column("end_column", "int32", "where it ends in its last line", True),
    Column("in_torch", "bool", "whether the file is one of torch's own"),
)


class CallSites:
    """The call sites of a record, numbered in the order of their first ops: one for all with equal frames."""

    def __init__(self, reader: TraceReader) -> None:
        self.first_rows: dict[int, int] = {}
        """By the record's own number of a place, the first row at it."""
        for row, site in enumerate(reader.rows.site):
            self.first_rows.setdefault(site, row)
        found = {site: reader.frames(row) for site, row in self.first_rows.items()}
        self.frames = [frames for frames in dict.fromkeys(found.values()) if frames]
        """By number, the frames of each, outermost first."""
        numbers = {frames: number for number, frames in enumerate(self.frames)}
        number_of = {site: numbers.get(frames) for site, frames in found.items()}
        self.of_row = [number_of[site] for site in reader.rows.site]
        """By row, the number; None where there are no frames."""

    def innermost_of_users(self) -> list[Frame | None]:
        """By number, the innermost frame that is not torch's."""
        in_torch = set(filter(is_of_torch, {frame.file for frames in self.frames for frame in frames}))
        return [
            next((frame for frame in reversed(frames) if frame.file not in in_torch), None)
            for frames in self.frames
        ]


def frames_table(reader: TraceReader) -> pa.Table:
    """One row for each frame of each call site, the outermost first."""
    sites = CallSites(reader).frames
    frames = [frame for frames in sites for frame in frames]
    in_torch = set(filter(is_of_torch, {frame.file for frame in frames}))
    cells: dict[str, Cells] = {
        "call_site": [site for site, found in enumerate(sites) for _ in found],
        "depth": [depth for found in sites for depth in range(len(found))],
        "file": coded(frame.file for frame in frames),
        "function": coded(frame.function for frame in frames),
        "line": [frame.line for frame in frames],
        "end_line": [frame.end_line for frame in frames],
        "column": [frame.column for frame in frames],
        "end_column": [frame.end_column for frame in frames],
        "in_torch": [frame.file in in_torch for frame in frames],
    }
    return build(COLUMNS, cells, metadata_of(reader.record, "frames"))
