"""A snapshot: a text file that says what a trace was like, and the check that another one still is."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Final

from torchlens._api.trace import Trace
from torchlens._files.durable import new_file
from torchlens._files.layout import MANIFEST
from torchlens._trace.reader import TraceReader
from torchlens.errors import (
    DamagedFileError,
    FileFormatError,
    MissingSnapshotError,
    OptionError,
    TorchLensError,
    TraceAssertionError,
    UnwritablePathError,
)
from torchlens.testing.by_statistics import compare_statistics
from torchlens.testing.description import Values, describe
from torchlens.testing.differences import (
    CompareValues,
    Difference,
    as_text,
    find_differences,
    header_differences,
)
from torchlens.testing.exact import comparing_values, remove_values, write_values
from torchlens.testing.given import reader_of
from torchlens.testing.page import page_of, read_page, refuse_other_files
from torchlens.testing.statistics import Tolerance

_STRENGTH: Final = ("none", "stats", "exact")
"""What a snapshot may have of the values: each serves for a check that asks for less, too."""


class Snapshot:
    """A text file beside a test that says what a trace was like when it was written.

    `path` is where it is, or will be; the values of `values="exact"` lie in a directory beside it, whose name
    ends in `.values`. `how_to_update` is what a failure tells the reader to type. `check` never writes.

    >>> import tempfile, torch, torchlens as tl
    >>> trace = tl.trace(torch.nn.ReLU(), torch.ones(2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     snapshot = tl.testing.Snapshot(f"{folder}/relu.txt")
    ...     written = snapshot.update(trace)
    ...     snapshot.check(trace)
    """

    def __init__(
        self, path: str | os.PathLike[str], how_to_update: str = "call Snapshot.update(trace)"
    ) -> None:
        self.path = Path(os.path.abspath(path))
        self.how_to_update = how_to_update

    @property
    def values_path(self) -> Path:
        """The directory that holds the values of an exact snapshot."""
        return self.path.with_name(self.path.name.removesuffix(".txt") + ".values")

    def check(
        self,
        trace: Trace,
        *,
        values: Values = "stats",
        rtol: float | None = None,
        atol: float | None = None,
    ) -> None:
        """Raise `TraceAssertionError`, with the layers that differ, unless the trace is as the snapshot says.

        `values` is `"stats"` for statistics within a tolerance, `"exact"` for every element, bit for bit
        unless `rtol` or `atol` is given, None for the structure alone. Raises `MissingSnapshotError` where
        there is no snapshot, `FileFormatError` or `DamagedFileError` where there is one that can't be read.
        """
        __tracebackhide__ = True
        reader, tolerance = reader_of(trace), _checked(values, rtol, atol)
        if not self.path.exists():
            raise MissingSnapshotError(
                f"there is no snapshot {_shown(self.path)}; {self._hint('to write it')}"
            )
        differences = self._differences(reader, values, tolerance)
        if differences:
            title = f"the trace is not as {_shown(self.path)} has it:"
            hint = f"expected? {self._hint('to write it anew')}"
            raise TraceAssertionError(as_text(title, differences, hint))

    def update(
        self,
        trace: Trace,
        *,
        values: Values = "stats",
        rtol: float | None = None,
        atol: float | None = None,
    ) -> bool:
        """Write the snapshot, unless there is one which the trace is as; whether it was written.

        What another release wrote, and what was damaged, is written over; a file that is no snapshot raises
        `PathTakenError`, a folder that can't be written `UnwritablePathError`.
        """
        reader, tolerance = reader_of(trace), _checked(values, rtol, atol)
        if self._holds(reader, values, tolerance):
            return False
        try:
            refuse_other_files(self.path)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if values == "exact":
                write_values(reader, self.values_path)
            else:
                remove_values(self.values_path)
            with new_file(self.path) as write:
                write(page_of(describe(reader, values)).encode())
        except OSError as error:
            if isinstance(error, TorchLensError):
                raise
            raise UnwritablePathError(
                error.errno, f"the snapshot {self.path} cannot be written: {error.strerror}"
            ) from error
        return True

    def _holds(self, reader: TraceReader, values: Values, tolerance: Tolerance) -> bool:
        try:
            return self.path.exists() and not self._differences(reader, values, tolerance)
        except (FileFormatError, DamagedFileError, MissingSnapshotError):
            return False

    def _differences(self, reader: TraceReader, values: Values, tolerance: Tolerance) -> list[Difference]:
        expected = read_page(self.path)
        found = describe(reader, values)
        has, wanted = expected.header.values, found.header.values
        if _STRENGTH.index(has) < _STRENGTH.index(wanted):
            return [Difference("values", f"{wanted} is asked for, and the snapshot was written with {has}")]
        try:
            layers = find_differences(expected, found, self._comparing(reader, values, tolerance))
        except DamagedFileError as error:
            raise self._values_lost(error) from None
        return [*header_differences(expected, found), *layers]

    def _comparing(self, reader: TraceReader, values: Values, tolerance: Tolerance) -> CompareValues | None:
        if values is None:
            return None
        if values == "stats":
            return partial(compare_statistics, tolerance=tolerance)
        if not self.values_path.is_dir():
            raise self._values_missing("there is no such directory")
        if not (self.values_path / MANIFEST).is_file():
            raise self._values_missing(f"{MANIFEST} is not there")
        return comparing_values(reader, self.values_path, tolerance)

    def _values_lost(self, error: DamagedFileError) -> TorchLensError:
        """What to raise where a file of the values can't be read, or is gone."""
        if isinstance(error.__cause__, FileNotFoundError):
            return self._values_missing(f"{Path(error.__cause__.filename).name} is not there")
        return DamagedFileError(f"{error}; {self._hint('to write it anew')}")

    def _values_missing(self, what: str) -> MissingSnapshotError:
        return MissingSnapshotError(
            f"the values of {_shown(self.path)} belong into {_shown(self.values_path)}, and {what}; "
            "commit the whole directory, also where a .gitignore leaves out *.safetensors; "
            + self._hint("to write both anew")
        )

    def _hint(self, purpose: str) -> str:
        return f"{purpose}: {self.how_to_update}"


def _checked(values: object, rtol: float | None, atol: float | None) -> Tolerance:
    if values not in ("stats", "exact", None):
        raise OptionError(f"values={values!r} is none of 'stats', 'exact' and None")
    return Tolerance(rtol, atol)


def _shown(path: Path) -> str:
    """A path as short as it can be said from here."""
    here = Path.cwd()
    return (path.relative_to(here) if path.is_relative_to(here) else path).as_posix()
