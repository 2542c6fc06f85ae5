"""What stands in a directory of values: the names of its files and the lines of its index.

`manifest.json` says what the directory is and whether it was completed. `index.jsonl` is appended to while
the model runs: one line when a value is put, one when a shard is finished, one when the disk fails. The
bytes are in safetensors files, the shards; a value is a blob, or a part of one, seen through a geometry.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from torchlens._files.sealed import Fields, Json

FORMAT: Final = "torchlens values"
VERSION: Final = 1
MANIFEST: Final = "manifest.json"
INDEX: Final = "index.jsonl"
MEBIBYTE: Final = 2**20
SHARD_BYTES: Final = 64 * MEBIBYTE
QUEUE_BYTES: Final = 256 * MEBIBYTE

Status: TypeAlias = Literal["complete", "unfinished"]
About: TypeAlias = Mapping[str, str | int | None]
_SHARD_NAME: Final = re.compile(r"values-[0-9]{5,12}\.safetensors")


def shard_name(number: int) -> str:
    """The file that holds the n-th shard."""
    return f"values-{number:05d}.safetensors"


@dataclass(frozen=True, slots=True)
class ValueLine:
    """A value that was put. It can be read once the shard that holds its blob is finished."""

    key: str
    about: About
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    """Elements from the blob's start."""
    blob: int | None
    """None for a value without elements, which needs no bytes."""
    conj: bool
    neg: bool

    def fields(self) -> Mapping[str, Json]:
        """The line as JSON."""
        found: dict[str, Json] = {
            "value": self.key,
            "about": self.about,
            "dtype": self.dtype,
            "shape": self.shape,
            "stride": self.stride,
            "offset": self.offset,
            "blob": self.blob,
        }
        if self.conj:
            found["conj"] = True
        if self.neg:
            found["neg"] = True
        return found


@dataclass(frozen=True, slots=True)
class MissingLine:
    """A value that was put and that no shard will hold."""

    key: str
    about: About
    reason: str

    def fields(self) -> Mapping[str, Json]:
        """The line as JSON."""
        return {"missing": self.key, "reason": self.reason, "about": self.about}


@dataclass(frozen=True, slots=True)
class ShardLine:
    """A shard with all its bytes on the disk. It is finished when the file has its name."""

    name: str
    nbytes: int
    sha256: str
    header_crc32: int
    first: int
    """Number of its first blob; the others follow."""
    count: int

    def fields(self) -> Mapping[str, Json]:
        """The line as JSON."""
        return {
            "shard": self.name,
            "bytes": self.nbytes,
            "sha256": self.sha256,
            "header_crc32": self.header_crc32,
            "first_blob": self.first,
            "blobs": self.count,
        }


@dataclass(frozen=True, slots=True)
class FailureLine:
    """What ended the writing."""

    reason: str

    def fields(self) -> Mapping[str, Json]:
        """The line as JSON."""
        return {"failure": self.reason}


Line: TypeAlias = ValueLine | MissingLine | ShardLine | FailureLine


def line_of(found: object) -> Line:
    """The line that a JSON object says; a `ValueError` if it says none."""
    fields = Fields(found)
    if "value" in fields:
        return _value_line(fields)
    if "shard" in fields:
        return shard_line_of(fields)
    if "missing" in fields:
        return MissingLine(fields.text("missing"), fields.about(), fields.text("reason"))
    return FailureLine(fields.text("failure"))


def _value_line(fields: Fields) -> ValueLine:
    shape, stride = fields.counts("shape"), fields.counts("stride")
    if len(shape) != len(stride):
        raise ValueError(f"it has {len(shape)} sizes and {len(stride)} strides")
    return ValueLine(
        fields.text("value"),
        fields.about(),
        fields.text("dtype"),
        shape,
        stride,
        fields.count("offset"),
        None if fields.any("blob") is None else fields.count("blob"),
        fields.flag("conj"),
        fields.flag("neg"),
    )


def shard_line_of(fields: Fields) -> ShardLine:
    """The shard that an object describes, in the index or the manifest."""
    name, sha256 = fields.text("shard"), fields.text("sha256")
    if not _SHARD_NAME.fullmatch(name):  # a name with a path in it could lead anywhere
        raise ValueError(f"it names {name[:80]!r}, which is no shard's name")
    crc, first, count = fields.count("header_crc32"), fields.count("first_blob"), fields.count("blobs")
    return ShardLine(name, fields.count("bytes"), sha256, crc, first, count)
