"""What a file takes: every storage once, a write the bytes it overwrote, and nothing that was not kept."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests.programs.answers import assert_same_answers, round_trip
from tests.saving.mutations import parts_of
from torchlens.saving import blobs


def value_bytes(trace: Any, directory: Path, **options: Any) -> int:
    """Bytes of values, without the safetensors header and the gaps between storages."""
    tl.save(trace, directory, **options)
    octets = sum(len(part) for name, part in parts_of(directory).items() if name.startswith("values-"))
    headers = [
        8 + int.from_bytes(part[:8], "little")
        for name, part in parts_of(directory).items()
        if name.startswith("values-")
    ]
    return octets - sum(headers)


def test_views_take_no_bytes_of_their_own(tmp_path: Path) -> None:
    x = torch.randn(64, 64)
    plain = value_bytes(tl.trace(lambda x: x.sin(), x), tmp_path / "plain")
    viewed = value_bytes(
        tl.trace(
            lambda x: [x.sin().t(), x.view(-1)[7:], x[::3, ::5], x.expand(9, 64, 64), x.unfold(0, 9, 1)], x
        ),
        tmp_path / "viewed",
    )
    assert plain == viewed == 2 * x.nbytes


def cached(x: Tensor, steps: int) -> Tensor:
    cache = torch.zeros(steps, 256)
    for t in range(steps):
        cache[t] = x * t
    return cache.sum()


def test_a_cache_that_is_written_step_by_step_costs_its_steps(tmp_path: Path) -> None:
    sizes = {
        steps: value_bytes(tl.trace(cached, (torch.ones(256), steps)), tmp_path / str(steps))
        for steps in (50, 100, 200)
    }
    assert sizes[200] - sizes[100] == 2 * (sizes[100] - sizes[50])
    step = 256 * 4
    assert sizes[200] <= 200 * step * 3.2 + 1024  # the cache, the rows written, the rows overwritten


@pytest.mark.parametrize("save", [[], [tl.func("relu")]], ids=["nothing", "one layer"])
def test_what_was_not_kept_is_not_written(save: Any, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(8, 512), nn.ReLU(), nn.Linear(512, 8))
    trace = tl.trace(model, torch.randn(4, 8), save=save)
    kept = trace.output.nbytes + (trace["relu_1"].nbytes if save else 0)
    assert value_bytes(trace, tmp_path / "run") == kept


def test_parameters_are_written_only_when_asked_for(tmp_path: Path) -> None:
    model = nn.Linear(64, 64, bias=False)
    trace = tl.trace(model, torch.randn(1, 64))
    without = value_bytes(trace, tmp_path / "without")
    assert value_bytes(trace, tmp_path / "with", params=True) - without == 64 * 64 * 4
    assert without < 2048


def test_a_small_part_of_a_large_storage_is_written_alone(tmp_path: Path) -> None:
    data = torch.randn(1000, 1000)
    trace = tl.trace(lambda x: x + 1, data[500:502])
    assert value_bytes(trace, tmp_path / "run") < 3 * 8192
    loaded = tl.load(tmp_path / "run")
    assert_same_answers(loaded, trace, without=lambda question, found, live: question == "summary")


def test_values_in_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "_SHARD_BYTES", 1000)
    trace = tl.trace(nn.Sequential(*[nn.Linear(16, 16) for _ in range(4)]), torch.randn(4, 16))
    loaded = round_trip(trace, tmp_path / "run", params=True)
    assert len([name for name in os.listdir(tmp_path / "run") if name.startswith("values-")]) > 4
    assert_same_answers(loaded, trace)
    assert_same_answers(round_trip(trace, tmp_path / "run.tlens", params=True), trace)


def test_loading_reads_no_value(tmp_path: Path) -> None:
    """Bytes that were changed are noticed when a value is read: loading has not looked at them."""
    tl.save(tl.trace(nn.ReLU(), torch.randn(1000)), tmp_path / "run")
    shard = tmp_path / "run" / "values-00000.safetensors"
    shard.write_bytes(shard.read_bytes()[:-4000] + b"\1" * 4000)
    loaded = tl.load(tmp_path / "run")
    with pytest.raises(tl.errors.DamagedFileError, match="not those that were written"):
        _ = loaded["relu_1"].out


def test_other_libraries_open_the_values(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    trace = tl.trace(nn.ReLU(), torch.tensor([-1.0, 2.0]))
    tl.save(trace, tmp_path / "run")
    found = safetensors.load_file(tmp_path / "run" / "values-00000.safetensors")
    assert [t.tolist() for name, t in sorted(found.items()) if "gap" not in name] == [[-1.0, 2.0], [0.0, 2.0]]
