"""JSON objects that carry a checksum of their own text, so that a flipped bit is found when they are read."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

Json: TypeAlias = "str | int | bool | Sequence[Json] | Mapping[str, Json] | None"
_CHECKSUM: Final = re.compile(rb',\s*"crc32": "([0-9a-f]{8})"\s*\}\s*\Z')


def seal(fields: Mapping[str, Json], indent: int | None = None) -> bytes:
    """The object's text, one line unless indented, with the CRC-32 of what stands before it as last field."""
    text = json.dumps(fields, indent=indent)[:-1].rstrip().encode()
    gap = b" " if indent is None else b"\n" + b" " * indent
    return b'%s,%s"crc32": "%08x"%s}\n' % (text, gap, zlib.crc32(text), b"" if indent is None else b"\n")


def unseal(octets: bytes) -> object:
    """The object of a sealed text; a `ValueError` that says what is wrong with it."""
    found = _CHECKSUM.search(octets, max(0, len(octets) - 64))
    if found is None:
        raise ValueError("it has no checksum at its end")
    text = octets[: found.start()]
    if zlib.crc32(text) != int(found[1], 16):
        raise ValueError("its text does not give the checksum at its end")
    return parse(text + b"}")


def parse(octets: bytes) -> object:
    """What a JSON text says; a `ValueError` also for what the parser gives up on."""
    try:
        found: object = json.loads(octets)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return found


class Fields:
    """The fields of a JSON object, each asked for with the type it must have; a `ValueError` otherwise."""

    def __init__(self, found: object) -> None:
        self._fields = as_object(found)

    def __contains__(self, name: str) -> bool:
        return name in self._fields

    def any(self, name: str) -> object:
        """A field of whatever type."""
        if name not in self._fields:
            raise ValueError(f"it has no {name!r}")
        return self._fields[name]

    def text(self, name: str) -> str:
        """A string."""
        found = self.any(name)
        if type(found) is not str:
            raise ValueError(f"its {name!r} is no string")
        return found

    def count(self, name: str) -> int:
        """An integer from 0 to what 63 bits hold."""
        return as_count(self.any(name), name)

    def counts(self, name: str) -> tuple[int, ...]:
        """A list of such integers."""
        return tuple(as_count(item, name) for item in as_list(self.any(name), name))

    def flag(self, name: str) -> bool:
        """A boolean; False where it is not there."""
        found = self._fields.get(name, False)
        if type(found) is not bool:
            raise ValueError(f"its {name!r} is no boolean")
        return found

    def items(self, name: str) -> tuple[object, ...]:
        """A list of anything."""
        return as_list(self.any(name), name)

    def about(self) -> dict[str, str | int | None]:
        """The field `about`: strings, integers and nulls by name; empty where it is not there."""
        about: dict[str, str | int | None] = {}
        for name, item in as_object(self._fields.get("about", {})).items():
            if item is not None and not isinstance(item, str | int):
                raise ValueError(f"{name!r} in its 'about' is no string, integer or null")
            about[name] = item
        return about


def as_object(found: object) -> Mapping[str, object]:
    """A JSON object."""
    if not isinstance(found, dict):
        raise ValueError("it is no object")
    return found  # pyright: ignore[reportUnknownVariableType] - JSON's keys are strings


def as_list(found: object, name: str) -> tuple[object, ...]:
    """A JSON list, which the message calls by the name."""
    if not isinstance(found, list):
        raise ValueError(f"its {name!r} is no list")
    return tuple(found)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - JSON's


def as_count(found: object, name: str) -> int:
    """An integer from 0 to what 63 bits hold."""
    if type(found) is not int or not 0 <= found < 2**63:
        raise ValueError(f"its {name!r} holds {str(found)[:40]}, which is no count")
    return found
