"""The text of a snapshot: what is damaged is refused by a typed error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchlens as tl
from tests import models
from torchlens.errors import DamagedFileError, FileFormatError, PathTakenError
from torchlens.testing import Snapshot
from torchlens.testing.page import read_page


def looped() -> Any:
    torch.manual_seed(0)
    return tl.trace(models.ReusedBlock(), torch.ones(3, 4))


DAMAGES: dict[str, tuple[Callable[[bytes], bytes], type[Exception], str]] = {
    "empty": (lambda text: b"", FileFormatError, "is empty, and no snapshot .* --torchlens-update"),
    "something else": (lambda text: b"{}", FileFormatError, "is no snapshot of a trace; delete it"),
    "newer": (lambda text: text.replace(b"format 1", b"format 2"), FileFormatError, "has format 2"),
    "cut off": (lambda text: text[:-20], DamagedFileError, "no checksum at its end"),
    "edited": (lambda text: text.replace(b"3x4", b"3x5"), DamagedFileError, "by hand or by a merge"),
    "a number edited": (lambda text: text.replace(b"mean 0", b"mean 1"), DamagedFileError, "by hand"),
    "a merge": (lambda text: text.replace(b"\nadd_1", b"\n<<<<<<< ours\nadd_1"), DamagedFileError, "merge"),
    "another checksum": (lambda text: text[:-9] + b"00000000\n", DamagedFileError, "by hand"),
    "no text": (lambda text: text + b"\xff", DamagedFileError, "is no text"),
    "more behind it": (lambda text: text + b"more", DamagedFileError, "by hand"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_snapshot_says_so(name: str, snapshot: Snapshot) -> None:
    change, error, message = DAMAGES[name]
    snapshot.update(looped())
    whole = snapshot.path.read_bytes()
    assert change(whole) != whole
    snapshot.path.write_bytes(change(whole))
    with pytest.raises(error, match=message):
        snapshot.check(looped())
    if name == "something else":
        with pytest.raises(PathTakenError, match="is no snapshot, and is not written over; delete it"):
            snapshot.update(looped())
        assert snapshot.path.read_bytes() == b"{}"
    else:
        assert snapshot.update(looped())
        assert snapshot.path.read_bytes() == whole


def test_every_flipped_byte_is_found_or_means_nothing(snapshot: Snapshot) -> None:
    snapshot.update(looped())
    described, whole = read_page(snapshot.path), snapshot.path.read_bytes()
    for at in range(0, len(whole), 7):
        snapshot.path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        try:
            assert read_page(snapshot.path) == described, at
        except (DamagedFileError, FileFormatError):
            pass


def test_a_checkout_with_other_line_ends(snapshot: Snapshot) -> None:
    snapshot.update(looped())
    snapshot.path.write_bytes(snapshot.path.read_bytes().replace(b"\n", b"\r\n"))
    snapshot.check(looped())
