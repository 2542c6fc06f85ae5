"""What a run wrote to disk, by label."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from torch import Tensor

from torchlens._files.layout import Status
from torchlens._files.values import StoredValues
from torchlens.errors import AmbiguousKeyError, MissingKeyError, MissingValueError


class LabelledValues(Mapping[str, Tensor]):
    """The values that a run wrote to disk, by the label of their op; also of a run that was killed.

    `values["relu_1:1"]` maps the file and copies nothing. Reading a value that did not get to the disk
    raises `MissingValueError`, which says why; `values.missing` has all of those.
    """

    def __init__(self, values: StoredValues) -> None:
        self._values = values
        self._keys: dict[str, list[str]] = {}
        for key in (*values, *values.missing):
            self._keys.setdefault(self._label(key), []).append(key)

    def _label(self, key: str) -> str:
        """The label noted beside a value; its key where there is none."""
        label = self._values.about(key).get("label")
        return label if isinstance(label, str) else key

    @property
    def status(self) -> Status:
        """`complete`, or `unfinished` where the run was killed or the disk failed."""
        return self._values.status

    @property
    def failure(self) -> str | None:
        """What ended the writing before its time, such as a full disk."""
        return self._values.failure

    @property
    def missing(self) -> Mapping[str, str]:
        """Reasons by label of the values that were begun and did not get to the disk."""
        return {self._label(key): reason for key, reason in self._values.missing.items()}

    def about(self, label: str) -> Mapping[str, str | int | None]:
        """What was noted beside a value, also a missing one."""
        return self._values.about(self._key(label))

    def verify(self) -> None:
        """Read every file whole and raise `DamagedFileError` unless each is what was written."""
        self._values.verify()

    def _key(self, label: str) -> str:
        keys = self._keys.get(label, [])
        if len(keys) == 1:
            return keys[0]
        if not keys:
            raise MissingKeyError(
                f"{self._values.path} has no value {label!r}; list() and .missing show those it has"
            )
        raise AmbiguousKeyError(
            f"{label!r} names {len(keys)} values, keys {', '.join(keys[:5])}; read those from StoredValues"
        )

    def __getitem__(self, label: str) -> Tensor:
        key = self._key(label)
        reason = self._values.why_missing(key)
        if reason is not None:
            raise MissingValueError(f"the value of {label} is not on the disk: {reason}")
        return self._values[key]

    def __contains__(self, label: object) -> bool:
        keys = self._keys.get(label, ()) if isinstance(label, str) else ()
        return any(key in self._values for key in keys)

    def __iter__(self) -> Iterator[str]:
        return (label for label in self._keys if label in self)

    def __len__(self) -> int:
        return sum(label in self for label in self._keys)

    def __repr__(self) -> str:
        return f"{repr(self._values)[:-1]}, by label>"


def load_values(path: str | os.PathLike[str]) -> LabelledValues:
    """Read the directory that a run wrote with `to_disk`, whether the run ended or was killed.

    `PathNotFoundError`, `FileFormatError` or `DamagedFileError` if it can't be.
    """
    return LabelledValues(StoredValues(path))
