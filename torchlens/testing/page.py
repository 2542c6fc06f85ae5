"""The text of a snapshot: written from a description, and read back with every doubt resolved by an error."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Final

from torchlens.errors import DamagedFileError, FileFormatError, PathTakenError
from torchlens.testing.description import Description, Header, LayerLine

FORMAT: Final = 1
_FIRST: Final = re.compile(r"torchlens snapshot, format (\d{1,9})")
_COUNTED: Final = re.compile(r"(\S+_\d+)(?: x(\d+))?")
_ESCAPE: Final = re.compile(r"\\u([0-9a-f]{4,6});")
_UPDATE: Final = "write it anew with --torchlens-update, and look at what changes"


def page_of(description: Description) -> str:
    """The text of a snapshot: a header, one line a layer, a checksum."""
    lines = [f"torchlens snapshot, format {FORMAT}", *_header_lines(description.header), ""]
    lines += map(_layer_text, description.layers)
    body = "\n".join(lines)
    return f"{body}\n\nchecksum {_checksum(body)}\n"


def _header_lines(header: Header) -> Iterator[str]:
    for name, text in asdict(header).items():
        yield f"{name.replace('_', ' ')}: {_escaped(text, within=' ,')}"


def _layer_text(line: LayerLine) -> str:
    parts = [_counted(line.label, line.passes), line.tensors]
    if line.module:
        parts.append(f"in {_escaped(line.module)}")
    if line.parents:
        parts.append("from " + ", ".join(_counted(label, n) for label, n in line.parents.items()))
    if line.params:
        parts.append("with " + ", ".join(f"{_escaped(name)} {text}" for name, text in line.params.items()))
    if line.values is not None:
        parts.append("values " + " ".join(f"{name} {text}" for name, text in line.values.items()))
    return " | ".join(parts)


def _counted(label: str, count: int) -> str:
    return _escaped(label) if count == 1 else f"{_escaped(label)} x{count}"


def _escaped(name: str, within: str = "") -> str:
    """A name in which nothing can be taken for the page's own signs; `within` may stand in it as they are."""
    return "".join(
        letter
        if letter in within or (letter.isprintable() and letter not in " ,|\\")
        else f"\\u{ord(letter):04x};"
        for letter in name
    )


def _plain(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)


def _checksum(body: str) -> str:
    return f"{zlib.crc32(body.encode('utf-8', 'backslashreplace')):08x}"


def read_page(path: Path) -> Description:
    """The description in a snapshot's text.

    Raises `FileFormatError` for what is no snapshot or one of another format, `DamagedFileError` for one that
    is not as it was written.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DamagedFileError(f"{path} is no text: {error}; {_UPDATE}") from error
    except OSError as error:
        raise DamagedFileError(f"{path} cannot be read: {error.strerror}; {_UPDATE}") from error
    _check_format(path, text)
    body, mark, checksum = text.rpartition("\n\nchecksum ")
    if not mark:
        raise DamagedFileError(f"{path} has no checksum at its end: it was cut off; {_UPDATE}")
    if checksum.strip() != _checksum(body):
        raise DamagedFileError(
            f"{path} was changed after it was written, by hand or by a merge: its text does not give the "
            f"checksum at its end; {_UPDATE}"
        )
    try:
        return _description(body.split("\n"))
    except (ValueError, KeyError, IndexError, OverflowError) as error:
        raise DamagedFileError(f"{path} cannot be understood: {error}; {_UPDATE}") from error


def refuse_other_files(path: Path) -> None:
    """Raise `PathTakenError` where a file stands that no snapshot was ever in."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        first = file.readline(100)
        if first and _FIRST.fullmatch(first.decode("latin-1").rstrip("\r\n")) is None:
            raise PathTakenError(
                f"{path} is no snapshot, and is not written over; delete it, or move it away"
            )


def _check_format(path: Path, text: str) -> None:
    found = _FIRST.fullmatch(text.partition("\n")[0])
    if not text:
        raise FileFormatError(f"{path} is empty, and no snapshot of a trace; {_UPDATE}")
    if found is None:
        raise FileFormatError(
            f"{path} is no snapshot of a trace; delete it, or move it away, and then {_UPDATE}"
        )
    if int(found[1]) != FORMAT:
        raise FileFormatError(
            f"{path} has format {found[1]}; this release reads format {FORMAT}: use the release that wrote "
            "it, or write it anew with --torchlens-update"
        )


def _description(lines: list[str]) -> Description:
    end = lines.index("")
    found = dict(line.split(": ", 1) for line in lines[1:end])
    header = Header(*(_plain(found[field.name.replace("_", " ")]) for field in fields(Header)))
    if header.values not in ("none", "stats", "exact"):
        raise ValueError(f"its values are {header.values[:40]!r}")
    return Description(header, tuple(map(_layer_line, lines[end + 1 :])))


def _layer_line(text: str) -> LayerLine:
    head, tensors, *rest = text.split(" | ")
    label, passes = _count_of(head)
    said = dict(part.split(" ", 1) for part in rest)
    words = said["values"].split(" ") if "values" in said else None
    return LayerLine(
        label,
        passes,
        tensors,
        _plain(said.get("in", "")),
        dict(_count_of(part) for part in _listed(said.get("from"))),
        {_plain(name): shape for name, shape in (part.split(" ", 1) for part in _listed(said.get("with")))},
        None if words is None else dict(zip(words[::2], words[1::2], strict=True)),
    )


def _count_of(text: str) -> tuple[str, int]:
    found = _COUNTED.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:60]!r} is no label")
    return _plain(found[1]), int(found[2] or 1)


def _listed(text: str | None) -> list[str]:
    return [] if text is None else text.split(", ")
