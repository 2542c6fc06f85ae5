"""What all tables share: the metadata of a schema, and integers that a column can hold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from torchlens._records import Record
from torchlens._version import __version__

SCHEMA_VERSION: Final = 1
"""Raised when a column is renamed or dropped, or gets another type or meaning; not when one is added."""
LARGEST: Final = 2**63 - 1
"""The largest number that a column of 64 bits holds."""


def metadata_of(record: Record, table: str) -> dict[str, str]:
    """What the schema of a table says of itself and of the run."""
    return {
        "torchlens.table": table,
        "torchlens.schema_version": str(SCHEMA_VERSION),
        "torchlens.version": __version__,
        "torchlens.torch_version": record.options.torch_version,
        "torchlens.status": record.status,
    }


def that_fit(numbers: Iterable[int | None]) -> list[int | None]:
    """The numbers, without those that 64 bits do not hold: tensors without elements can be of any size."""
    return [None if number is None or number > LARGEST else number for number in numbers]
