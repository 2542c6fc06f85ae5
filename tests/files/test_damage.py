"""Files that are cut off, changed or made to mislead: a typed error, never a crash or a wrong value."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.files.bits import check_same, write
from torchlens._files.sealed import seal, unseal
from torchlens._files.values import StoredValues
from torchlens.errors import DamagedFileError, FileFormatError, MissingValueError, TorchLensError

VALUES = {
    "0": torch.arange(20.0).reshape(4, 5),
    "1": torch.tensor(7, dtype=torch.int8),
    "2": torch.randn(5, dtype=torch.complex64).conj(),
    "3": torch.arange(300.0),
    "4": torch.eye(2).to_sparse(),
}
MANIFEST, INDEX, SHARD = "manifest.json", "index.jsonl", "values-00000.safetensors"
FILES = (MANIFEST, INDEX, SHARD)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sound") / "values"
    write(path, VALUES, shard_bytes=1000, queue_bytes=2000)
    return path


@pytest.fixture
def copy(sound: Path, tmp_path: Path) -> Path:
    shutil.copytree(sound, tmp_path / "values")
    return tmp_path / "values"


def read_all(path: Path) -> dict[str, Tensor]:
    stored = StoredValues(path)
    return {key: stored[key] for key in stored}


def verify(path: Path) -> None:
    StoredValues(path).verify()


def check_no_wrong_value(path: Path) -> int:
    """Raise if a value differs from what was written; gives how many could be read."""
    try:
        stored = StoredValues(path)
    except TorchLensError:
        return 0
    count = 0
    for key in stored:
        try:
            value = stored[key]
        except (DamagedFileError, FileFormatError):
            continue
        check_same(value, VALUES[key])
        count += 1
    return count


@pytest.mark.parametrize("name", FILES)
def test_any_truncation_is_found(name: str, copy: Path) -> None:
    octets = (copy / name).read_bytes()
    for length in {*range(0, len(octets) - 1, 7), len(octets) - 2}:
        (copy / name).write_bytes(octets[:length])
        with pytest.raises(DamagedFileError, match=name):
            read_all(copy)


@pytest.mark.parametrize("name", FILES)
def test_any_flipped_bit_is_found(name: str, copy: Path) -> None:
    """Among the elements by `verify` alone, which is what it is for."""
    octets = (copy / name).read_bytes()
    for at in range(len(octets)):
        (copy / name).write_bytes(octets[:at] + bytes([octets[at] ^ 1 << at % 8]) + octets[at + 1 :])
        header = 8 + int.from_bytes(octets[:8], "little")
        with pytest.raises((DamagedFileError, FileFormatError), match=name):
            verify(copy) if name == SHARD and at >= header else read_all(copy)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("what", ["gone", "a directory", "a pipe", "empty", "longer", "a link to itself"])
def test_a_file_that_is_something_else(name: str, what: str, copy: Path) -> None:
    octets = (copy / name).read_bytes()
    (copy / name).unlink()
    if what == "a directory":
        (copy / name).mkdir()
    elif what == "a pipe":
        os.mkfifo(copy / name)
    elif what == "a link to itself":
        (copy / name).symlink_to(copy / name)
    elif what != "gone":
        (copy / name).write_bytes(octets + b"\0" if what == "longer" else b"")
    with pytest.raises((DamagedFileError, FileFormatError), match=name):
        read_all(copy)
    if name == SHARD:  # the others are read as before
        check_same(StoredValues(copy)["3"], VALUES["3"])
        with pytest.raises(DamagedFileError, match=name):
            StoredValues(copy).verify()


@given(data=st.data())
def test_no_bytes_crash_the_reader(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("random") / "values"
    write(path, VALUES, shard_bytes=1000, queue_bytes=2000)
    name = data.draw(st.sampled_from(FILES))
    octets = bytearray((path / name).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        begin = data.draw(st.integers(0, min(len(octets), 500)))
        end = data.draw(st.integers(begin, begin + 20))
        octets[begin:end] = data.draw(st.binary(max_size=20))
    if name == SHARD:  # the elements have no checksum that is read
        (path / name).write_bytes(bytes(octets))
        for value in list_readable(path):
            value.sum()
    else:
        (path / name).write_bytes(bytes(octets))
        check_no_wrong_value(path)
    shutil.rmtree(path.parent)


def list_readable(path: Path) -> list[Tensor]:
    stored, found = StoredValues(path), []
    for key in stored:
        try:
            found.append(stored[key])
        except DamagedFileError:
            continue
    return found


def rewrite(path: Path, change: Callable[[dict[str, Any]], object], at: int = 0) -> None:
    """Change a line of the index, or the manifest, and give it a checksum that is right."""
    lines = path.read_bytes().splitlines(keepends=True) if path.name == INDEX else [path.read_bytes()]
    fields = unseal(lines[at].rstrip(b"\n"))
    change(fields)
    lines[at] = seal(fields)
    path.write_bytes(b"".join(lines))
    if path.name == INDEX:
        length = path.stat().st_size
        rewrite(path.parent / MANIFEST, lambda manifest: manifest.update(index_bytes=length))


HOSTILE_VALUES: dict[str, tuple[dict[str, Any], str]] = {
    "more elements than bytes": ({"shape": [4, 6]}, "do not fit its 80 bytes"),
    "a stride that leaves the blob": ({"stride": [500, 1]}, "do not fit its 80 bytes"),
    "an offset that leaves the blob": ({"offset": 1}, "do not fit its 80 bytes"),
    "a wider type": ({"dtype": "float64"}, "do not fit its 80 bytes"),
    "a negative size": ({"shape": [-4, 5]}, "holds -4, which is no count"),
    "a negative stride": ({"stride": [-5, 1]}, "holds -5, which is no count"),
    "a size that overflows": ({"shape": [2**62, 2**62], "stride": [0, 0]}, "do not fit its 80 bytes"),
    "a size beyond 64 bits": ({"shape": [2**64, 5]}, "which is no count"),
    "a stride that overflows": ({"stride": [2**62, 2**62]}, "do not fit its 80 bytes"),
    "no element, and sizes that overflow": ({"shape": [0, 2**62, 2**62], "stride": [1, 1, 1]}, "do not fit"),
    "a hundred dimensions": ({"shape": [1] * 100, "stride": [1] * 100}, "do not fit its 80 bytes"),
    "more sizes than strides": ({"shape": [4, 5, 1]}, "3 sizes and 2 strides"),
    "a size that is no number": ({"shape": [4.0, 5]}, "holds 4.0, which is no count"),
    "a size that is true": ({"shape": [True, 5]}, "holds True, which is no count"),
    "no shape": ({"shape": None}, "'shape' is no list"),
    "no key": ({"value": None}, "'value' is no string"),
    "a blob that no shard has": ({"blob": 99}, "has values that no shard holds"),
    "elements without a blob": ({"blob": None}, "do not fit its 0 bytes"),
    "something else beside it": ({"about": {"x": []}}, "'x' in its 'about' is no string"),
    "a flag that is none": ({"conj": 1}, "'conj' is no boolean"),
    "the key of another": ({"value": "1"}, "has the value '1' twice"),
}


@pytest.mark.parametrize("name", HOSTILE_VALUES)
def test_a_hostile_value(name: str, copy: Path) -> None:
    change, complaint = HOSTILE_VALUES[name]
    rewrite(copy / INDEX, lambda fields: fields.update(change))
    with pytest.raises(DamagedFileError, match=complaint):
        read_all(copy)


@pytest.mark.parametrize("dtype", ["float1024", "qint8", "float", "Tensor", "../x", ""])
def test_a_type_that_this_torch_does_not_have(dtype: str, copy: Path) -> None:
    rewrite(copy / INDEX, lambda fields: fields.update(dtype=dtype))
    stored = StoredValues(copy)
    with pytest.raises(FileFormatError, match=f"has dtype '{dtype}', which torch"):
        stored["0"]
    check_same(stored["1"], VALUES["1"])


HOSTILE_SHARDS: dict[str, tuple[dict[str, Any], str]] = {
    "a path above": ({"shard": "../values-00000.safetensors"}, "no shard's name"),
    "an absolute path": ({"shard": "/etc/passwd"}, "no shard's name"),
    "a name that ends a string": ({"shard": "values-00000.safetensors\0"}, "no shard's name"),
    "a name and a line's end": ({"shard": "values-00000.safetensors\n"}, "no shard's name"),
    "digits of another script": ({"shard": "values-٠٠٠٠٠.safetensors"}, "no shard's name"),
    "the blobs of another": ({"blobs": 4}, "hold the same blob"),
    "more blobs than there are": (
        {"first_blob": 3, "blobs": 2**62},
        "hold the same blob",
    ),
    "fewer bytes": ({"bytes": 8}, "were written"),
    "no size": ({"bytes": "many"}, "is no count"),
}


@pytest.mark.parametrize("name", HOSTILE_SHARDS)
def test_a_hostile_shard_line(name: str, copy: Path) -> None:
    change, complaint = HOSTILE_SHARDS[name]
    lines = [unseal(line) for line in (copy / INDEX).read_bytes().splitlines()]
    at = next(at for at, fields in enumerate(lines) if "shard" in fields)
    rewrite(copy / MANIFEST, lambda manifest: manifest["shards"][0].update(change))
    rewrite(copy / INDEX, lambda fields: fields.update(change), at)
    with pytest.raises(DamagedFileError, match=complaint):
        read_all(copy)


HEADERS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a gap": (lambda header: header["1"].update(data_offsets=[84, 85]), "belongs to no blob"),
    "an overlap": (lambda header: header["0.x"].update(data_offsets=[0, 80]), "belongs to no blob"),
    "beyond the end": (lambda header: header["2"].update(data_offsets=[96, 10**6]), "bytes for shape"),
    "backwards": (lambda header: header["1"].update(data_offsets=[81, 80]), "-1 bytes for shape"),
    "three offsets": (lambda header: header["1"].update(data_offsets=[80, 81, 82]), "3 offsets"),
    "an unknown type": (lambda header: header["1"].update(dtype="F1024"), "type 'F1024'"),
    "a negative size": (lambda header: header["1"].update(shape=[-1]), "is no count"),
    "an entry that is none": (lambda header: header.update({"1": 5}), "is no object"),
    "a blob that is not there": (lambda header: header.update({"x": header.pop("1")}), "has no blob 1"),
    "a crooked beginning": (lambda header: swap_gap(header), "where no number may"),
}


def swap_gap(header: dict[str, Any]) -> None:
    header["1.x"] = {"dtype": "U8", "shape": [1], "data_offsets": [80, 81]}
    header["1"]["data_offsets"] = [81, 82]
    header["2.gap"].update(shape=[14], data_offsets=[82, 96])


@pytest.mark.parametrize("name", HEADERS)
def test_a_hostile_header(name: str, copy: Path) -> None:
    change, complaint = HEADERS[name]
    octets = (copy / SHARD).read_bytes()
    size = int.from_bytes(octets[:8], "little")
    header = json.loads(octets[8 : 8 + size])
    header["0.x"] = {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}
    if name == "an overlap":
        header["0.x"]["shape"] = [80]
    change(header)
    replace_header(copy, json.dumps(header).encode(), octets[8 + size :])
    with pytest.raises(DamagedFileError, match=complaint):
        read_all(copy)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"[" * 100_000, "nested too deeply"),
        (b"{", "is damaged"),
        (b"\xff\xfe", "is damaged"),
        (b"[]", "is no object"),
        (b'{"0": {"dtype": "F32", "shape": [' + b"9" * 5000 + b'], "data_offsets": [0, 80]}}', "is damaged"),
    ],
    ids=["deep", "half", "no text", "a list", "a long number"],
)
def test_a_header_that_is_none(text: bytes, complaint: str, copy: Path) -> None:
    replace_header(copy, text, b"")
    with pytest.raises(DamagedFileError, match=complaint):
        read_all(copy)


def replace_header(path: Path, text: bytes, rest: bytes) -> None:
    """Give a shard another header, and the index what it then must say."""
    text += b" " * (-(len(text) + 8) % 64)
    whole = len(text).to_bytes(8, "little") + text
    (path / SHARD).write_bytes(whole + rest)
    change = {"bytes": len(whole) + len(rest), "header_crc32": crc32(whole)}
    lines = [unseal(line) for line in (path / INDEX).read_bytes().splitlines()]
    at = next(at for at, fields in enumerate(lines) if "shard" in fields)
    rewrite(path / MANIFEST, lambda manifest: manifest["shards"][0].update(change))
    rewrite(path / INDEX, lambda fields: fields.update(change), at)


def crc32(octets: bytes) -> int:
    """Bit by bit, after the polynomial."""
    register = 0xFFFFFFFF
    for octet in octets:
        register ^= octet
        for _ in range(8):
            register = register >> 1 ^ (0xEDB88320 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


def test_a_header_longer_than_the_file(copy: Path) -> None:
    octets = bytearray((copy / SHARD).read_bytes())
    octets[:8] = (2**63).to_bytes(8, "little")
    (copy / SHARD).write_bytes(bytes(octets))
    with pytest.raises(DamagedFileError, match="claims 9223372036854775808 bytes"):
        read_all(copy)


@pytest.mark.parametrize(
    ("change", "error", "complaint"),
    [
        ({"format": "other"}, FileFormatError, "says format 'other', version 1"),
        ({"version": 2}, FileFormatError, "version 2; this release reads"),
        ({"version": True}, FileFormatError, "version True"),
        ({"status": "done"}, DamagedFileError, "its status is 'done'"),
        ({"shards": {}}, DamagedFileError, "'shards' is no list"),
        ({"shards": []}, DamagedFileError, "the manifest and the index of .* differ"),
        ({"missing": []}, DamagedFileError, "has values that no shard holds"),
        ({"missing": [1]}, DamagedFileError, "is no object"),
        ({"index_bytes": 5}, DamagedFileError, "the manifest says 5"),
        ({"failure": 5}, DamagedFileError, "'failure' is no string"),
    ],
)
def test_a_manifest_that_says_something_else(
    change: dict[str, Any], error: type[Exception], complaint: str, copy: Path
) -> None:
    rewrite(copy / MANIFEST, lambda manifest: manifest.update(change))
    with pytest.raises(error, match=complaint):
        read_all(copy)


def test_a_manifest_of_another_program(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text('{"name": "an extension"}')
    with pytest.raises(FileFormatError, match="says format None"):
        StoredValues(tmp_path)


def unfinish(path: Path) -> None:
    """Give a directory the manifest that it had while it was written."""
    first = {"status": "unfinished", "index_bytes": None, "shards": [], "missing": []}
    rewrite(path / MANIFEST, lambda manifest: manifest.update(first))


def test_a_line_that_was_begun_when_the_process_was_killed(copy: Path) -> None:
    rewrite(
        copy / MANIFEST, lambda manifest: manifest.update(status="unfinished", index_bytes=None, shards=[])
    )
    with open(copy / INDEX, "ab") as file:
        file.write(b'{"value": "5", "abo')
    assert set(read_all(copy)) == set(VALUES) - {"4"}
    with open(copy / INDEX, "ab") as file:
        file.write(b"\n")
    with pytest.raises(DamagedFileError, match=r"line \d+ of .*index\.jsonl is damaged"):
        read_all(copy)


def test_a_shard_without_its_name_is_not_finished(copy: Path) -> None:
    rewrite(
        copy / MANIFEST, lambda manifest: manifest.update(status="unfinished", index_bytes=None, shards=[])
    )
    (copy / SHARD).rename(copy / f"{SHARD}.part")
    stored = StoredValues(copy)
    assert list(stored) == ["3"]
    with pytest.raises(MissingValueError, match="the process was killed"):
        stored["0"]
