"""Views of one storage that nothing wrote to are written once."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.files.bits import check_same
from torchlens._files.shard import StorageCopies
from torchlens._files.values import StoredValues
from torchlens._files.writer import ValueWriter


def bytes_written(path: Path, tensors: list[Tensor], *, shard_bytes: int = 2**20) -> int:
    """Bytes of the shards that tensors of one storage give; raises unless all come back."""
    writer, copies = ValueWriter(path, shard_bytes=shard_bytes), StorageCopies()
    for at, tensor in enumerate(tensors):
        writer.put(str(at), tensor, {}, shared_with=copies)
    writer.close()
    stored = StoredValues(path)
    for at, tensor in enumerate(tensors):
        check_same(stored[str(at)], tensor)
    return sum(file.stat().st_size for file in path.glob("*.safetensors"))


X = torch.rand(100, 100)
FLAT = torch.arange(10_000, dtype=torch.uint8)
SHARED = {
    "itself": [X, X],
    "turned, cut, reshaped, with gaps, wide": [X, X.t(), X[3:5], X.view(-1), X[:, 7], X[0].expand(9, 100)],
    "other types": [X, X.view(torch.int32), X.view(torch.uint8), X.view(torch.bfloat16)],
    "a part with gaps, twice": [X[:, ::2], X[:, ::2]],
    "nothing": [X, X[:0]],
    "a cut where a wider type may begin": [FLAT, FLAT[8:16].view(torch.float64)],
    "after another part": [X, X[0], X[1], X[2], X[3:60], X],
}
ONCE = {"a part with gaps, twice": 20_000, "a cut where a wider type may begin": 10_000}
COPIED = {
    "more than there is": ([X[:50], X], 60_000),
    "elements that the gaps left out": ([X[:, ::2], X[:, 1::2]], 40_000),
    "elements that begin within one": ([FLAT[1:], FLAT[8:16].view(torch.int64)], 10_000),
}


@pytest.mark.parametrize("shard_bytes", [16, 2**20])
@pytest.mark.parametrize("name", SHARED)
def test_elements_that_are_there_are_written_once(name: str, shard_bytes: int, tmp_path: Path) -> None:
    once = ONCE.get(name, 40_000)
    assert once < bytes_written(tmp_path / "values", SHARED[name], shard_bytes=shard_bytes) < once + 500


@pytest.mark.parametrize("name", COPIED)
def test_elements_that_are_not_there_are_written(name: str, tmp_path: Path) -> None:
    tensors, nbytes = COPIED[name]
    assert nbytes < bytes_written(tmp_path / "values", tensors) < nbytes + 500


def test_a_new_token_after_a_write(tmp_path: Path) -> None:
    writer, x = ValueWriter(tmp_path / "values"), torch.zeros(3)
    writer.put("before", x, {}, shared_with=StorageCopies())
    x.add_(1)
    writer.put("after", x, {}, shared_with=StorageCopies())
    writer.close()
    stored = StoredValues(tmp_path / "values")
    assert (stored["before"].tolist(), stored["after"].tolist()) == ([0.0] * 3, [1.0] * 3)


@st.composite
def views(draw: st.DrawFn) -> list[Tensor]:
    """Views of one storage, of several types."""
    memory = torch.frombuffer(bytearray(draw(st.binary(min_size=128, max_size=128))), dtype=torch.uint8)
    found = []
    for _ in range(draw(st.integers(1, 8))):
        base = memory.view(draw(st.sampled_from([torch.uint8, torch.int16, torch.float64, torch.complex128])))
        room = base.numel() - 1
        size, offset = draw(st.integers(0, 3)), draw(st.integers(0, room))
        step = draw(st.integers(0, (room - offset) // max(1, size - 1)))
        rest = (room - offset - max(0, size - 1) * step) // 2
        found.append(base.as_strided((size, 3), (step, draw(st.integers(0, rest))), offset))
    return found


@given(views(), st.sampled_from([32, 4096]))
def test_any_views_come_back(tensors: list[Tensor], shard_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as parent:
        bytes_written(Path(parent) / "values", tensors, shard_bytes=shard_bytes)
