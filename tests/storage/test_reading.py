"""Values that a run left on the disk, by label."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.files.bits import number_of
from tests.files.ends import KEYS, SIZES
from torchlens._files.writer import ValueWriter
from torchlens.errors import AmbiguousKeyError, DamagedFileError, MissingKeyError, MissingValueError
from torchlens.storage.reading import load_values


def write(path: Path, about: dict[str, dict[str, str | int | None]]) -> None:
    writer = ValueWriter(path, **SIZES)
    for key, found in about.items():
        writer.put(key, torch.eye(2).to_sparse() if found.get("sparse") else number_of(key), found)
    writer.close()


def test_by_label(tmp_path: Path) -> None:
    write(tmp_path / "values", {key: {"label": f"relu_{key[0]}:1", "index": 7} for key in KEYS})
    values = load_values(str(tmp_path / "values"))
    assert (values.status, values.failure, values.missing) == ("complete", None, {})
    assert list(values) == [f"relu_{at}:1" for at in range(9)]
    assert len(values) == 9
    assert torch.equal(values["relu_3:1"], number_of("3.0"))
    assert values.about("relu_3:1") == {"label": "relu_3:1", "index": 7}
    assert "relu_3:1" in values
    assert "3.0" not in values
    assert 5 not in values
    assert repr(values) == f"<9 values, 0 missing, complete: {str(tmp_path / 'values')!r}, by label>"
    with pytest.raises(MissingKeyError, match="has no value 'relu_99:1'"):
        values["relu_99:1"]
    values.verify()
    (tmp_path / "values" / "values-00001.safetensors").unlink()
    with pytest.raises(DamagedFileError, match="values-00001"):
        values.verify()


def test_missing_by_label(tmp_path: Path) -> None:
    write(tmp_path / "values", {"0.0": {"label": "to_sparse_1:1", "sparse": 1}, "1.0": {"label": "sum_1:1"}})
    values = load_values(tmp_path / "values")
    assert list(values) == ["sum_1:1"]
    assert values.missing == {
        "to_sparse_1:1": "a tensor of layout sparse_coo, which has no plain elements to write"
    }
    assert values.about("to_sparse_1:1")["sparse"] == 1
    assert "to_sparse_1:1" not in values
    with pytest.raises(MissingValueError, match="layout sparse_coo"):
        values["to_sparse_1:1"]


def test_values_without_a_label_and_two_with_one(tmp_path: Path) -> None:
    write(
        tmp_path / "values", {"0.0": {}, "1.0": {"label": "a"}, "2.0": {"label": "a"}, "3.0": {"label": None}}
    )
    values = load_values(tmp_path / "values")
    assert list(values) == ["0.0", "a", "3.0"]
    assert torch.equal(values["0.0"], number_of("0.0"))
    with pytest.raises(AmbiguousKeyError, match=r"'a' names 2 values, keys 1\.0, 2\.0"):
        values["a"]
