"""The forms in which a table is written to a file."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from torchlens.errors import OptionError

Form: TypeAlias = Literal["parquet", "csv", "json", "arrow"]
FORMS: Final[tuple[Form, ...]] = ("parquet", "csv", "json", "arrow")
"""`arrow` is the Arrow IPC file format, which Feather V2 is another name for."""
_ENDINGS: Final[dict[str, Form]] = {"pq": "parquet", "feather": "arrow", "ipc": "arrow"}


def form_of(name: str) -> Form:
    """The form of this name, or that files with this ending are of."""
    lowered = name.lower()
    if lowered in FORMS:
        return lowered
    if lowered in _ENDINGS:
        return _ENDINGS[lowered]
    given = f"there is no form {name!r}" if name else "the path has no ending that names a form"
    raise OptionError(f"{given}; tables are written as {', '.join(FORMS)}")
