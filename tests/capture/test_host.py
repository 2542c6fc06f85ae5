"""Values that leave torch and come back: edges, values and what was written meanwhile."""

from __future__ import annotations

import ctypes
import zlib
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests.programs.origins_unseen import CANNOT_BE_SEEN
from tests.programs.reading import floats, lint
from torchlens._values import handed_out
from torchlens.errors import OverwrittenError


def traced(model: Any, *inputs: Any) -> Any:
    trace = tl.trace(model, inputs or (floats(4),))
    lint(trace)
    return trace


def host_edges(trace: Any) -> list[tuple[str, str]]:
    return [(above, below) for above, below, host in trace.graph.edges(data="host") if host]


def test_an_edge_through_the_host_is_marked() -> None:
    trace = traced(lambda x: torch.from_numpy((x * 2).numpy()) + x)
    assert host_edges(trace) == [("mul_1:1", "source_1:1")]
    assert trace.graph.edges["mul_1:1", "source_1:1"]["positions"] == ("host",)
    assert not trace.graph.edges["source_1:1", "add_1:1"]["host"]
    assert [parent.label for parent in trace["source_1"].parents] == ["mul_1:1"]
    assert trace["mul_1"].reads == ("numpy",)
    assert trace.provenance.verified


def test_a_call_that_takes_host_data_has_the_edge_beside_its_arguments() -> None:
    trace = traced(lambda x: torch.tensor((x * 2).tolist()) + x)
    assert host_edges(trace) == [("mul_1:1", "tensor_1:1")]
    assert trace["tensor_1"].args[0] == pytest.approx([-2.0, -2 / 3, 2 / 3, 2.0])


def test_the_parent_is_the_value_that_left() -> None:
    def model(x: Tensor) -> Tensor:
        y = x * 1
        left = y.tolist()
        y.add_(1)
        return torch.tensor(left) + y

    trace = traced(model)
    assert host_edges(trace) == [("mul_1:1", "tensor_1:1")]


def test_a_parameter_through_the_host_is_a_parameter() -> None:
    class Shares(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4, bias=False).requires_grad_(False)

        def forward(self, x: Tensor) -> Tensor:
            return torch.from_dlpack(self.layer.weight) @ x + self.layer(x)

    trace = traced(Shares())
    (source,) = [op for op in trace.ops if op.kind == "source"]
    assert len(source.params) == 1 and trace.provenance.verified


def test_only_the_part_that_is_shared_counts() -> None:
    def model(x: Tensor) -> Tensor:
        y = torch.zeros(4)
        y[:2] = x[:2]
        y[2:] = 5
        return torch.from_numpy(y.numpy()[2:]) + 1

    trace = traced(model)
    assert host_edges(trace) == [("setitem_2:1", "source_1:1")]


def test_values_that_left_in_another_module_call_are_not_taken_if_some_left_in_this() -> None:
    class Reads(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.tensor(x.tolist())

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = Reads(), Reads()

        def forward(self, x: Tensor) -> Tensor:
            return self.one(x * 2) + self.other(x * 3) + torch.tensor(list(range(4)))

    trace = traced(Both())
    here = {("mul_1:1", "tensor_1:1"), ("mul_2:1", "tensor_2:1")}
    assert set(host_edges(trace)) == here | {("mul_1:1", "tensor_3:1"), ("mul_2:1", "tensor_3:1")}
    assert trace.provenance.reasons[0].count == 3


def test_numbers_are_no_round_trip() -> None:
    trace = traced(lambda x: torch.tensor(x.sum().item()) + torch.full((4,), float(x[0])) + x)
    assert trace.provenance.verified and host_edges(trace) == []


def test_what_was_made_before_anything_left_is_a_constant() -> None:
    def model(x: Tensor) -> Tensor:
        table = torch.tensor([[1.0, 2.0, 3.0, 4.0]]) + torch.from_numpy(np.ones(4, dtype="float32"))
        return table * x + len(x.tolist())

    assert traced(model).provenance.verified


@pytest.mark.parametrize("write_first", [True, False], ids=["the tensor", "its twin"])
def test_values_of_tensors_that_share_memory_are_those_at_the_op(write_first: bool) -> None:
    def model(x: Tensor) -> Tensor:
        y = x * 1
        twin = torch.from_numpy(y.numpy())
        before = twin + 0
        one, other = (y, twin) if write_first else (twin, y)
        one[1:].mul_(3)
        return other + before

    trace = traced(model)
    expected = torch.cat([floats(4)[:1], floats(4)[1:] * 3])
    assert trace.provenance.verified
    assert torch.equal(trace["mul_1"].out, floats(4))
    assert torch.equal(trace["source_1"].out, floats(4))
    assert torch.equal(trace["add_2"].args[0].out, expected)
    assert "mul_2:1" in [parent.label for parent in trace["add_2"].parents]


def test_several_tensors_over_one_memory() -> None:
    def model(x: Tensor) -> Tensor:
        y = x * 1
        twins = [torch.from_numpy(y.numpy()), torch.from_numpy(y.numpy()[1:]), torch.from_dlpack(y)]
        before = sum(twin.sum() for twin in twins)
        for at, each in enumerate([y, *twins]):
            each.mul_(at + 2)
        return y + twins[0] + twins[2] + before

    trace = traced(model)
    assert trace.provenance.verified and trace.check()
    for source in ("source_1", "source_2", "source_3"):
        assert [parent.label for parent in trace[source].parents] == ["mul_1:1"]
    # the third write reached a part of the memory only
    writes = [[parent.label for parent in op.parents] for op in trace["mul_2"].ops]
    assert writes == [["mul_1:1"], ["mul_2:1"], ["mul_2:2"], ["mul_2:2", "mul_2:3"]]
    assert torch.equal(trace["source_1"].out, floats(4)) and torch.equal(trace["source_3"].out, floats(4))


def test_a_write_beyond_what_is_shared_is_none_of_the_other() -> None:
    def model(x: Tensor) -> Tensor:
        y = x * 1
        end = torch.from_numpy(y.numpy()[2:])
        y[:2] = 0
        return end + 1

    trace = traced(model)
    assert [parent.label for parent in trace["source_1"].parents] == ["setitem_1:1"]
    assert torch.equal(trace["source_1"].out, floats(4)[2:])


def test_a_write_that_reaches_partly_into_another_tensor_makes_its_older_values_unreadable() -> None:
    def model(x: Tensor) -> Tensor:
        y = x * 1
        end = torch.from_numpy(y.numpy()[2:])
        before = end * 2
        y.zero_()
        return end + before

    trace = traced(model)
    with pytest.raises(OverwrittenError, match="written through another tensor"):
        trace["source_1"].out
    assert torch.equal(trace["mul_1"].out, floats(4))


# ---- writes beside torch -------------------------------------------------------------------------


def test_older_values_raise_after_a_write_through_numpy() -> None:
    def model(x: Tensor) -> Tensor:
        y = x * 2
        z = y + 1
        y.numpy()[0] = 7
        return y

    trace = traced(model)
    assert trace.provenance.verification_reason == "write_through_numpy"
    with pytest.raises(OverwrittenError, match="something beside torch's ops wrote there"):
        trace["mul_1"].out
    assert trace.output[0] == 7, "what the model returned is still known"
    assert torch.equal(trace["add_1"].out, floats(4) * 2 + 1)


def test_a_write_is_found_among_writes_of_torch() -> None:
    def model(x: Tensor) -> Tensor:
        y = x * 2
        array = y.numpy()
        y.add_(1)
        array[2] = -9
        y[3] = 4
        y.mul_(2)
        return y

    trace = traced(model)
    assert trace.provenance.verification_reason == "write_through_numpy"
    after = torch.tensor([-1, 1 / 3, -9, 4])
    assert torch.allclose(trace["setitem_1"].out, after), "what came after the write is known"
    with pytest.raises(OverwrittenError, match="something beside torch's ops wrote there"):
        trace["add_1"].out


def test_a_write_is_found_in_a_view_with_gaps() -> None:
    def model(x: Tensor) -> Tensor:
        y = x.view(2, 2) * 2
        y[:, 1].numpy()[1] = 9
        return y

    assert traced(model).provenance.verification_reason == "write_through_numpy"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.bool, torch.complex64, torch.int8, torch.float64])
def test_memory_of_every_type_is_summed_up(dtype: torch.dtype) -> None:
    def model(x: Tensor) -> Tensor:
        y = x.to(dtype) | True if dtype is torch.bool else x.to(dtype) * 2
        y.untyped_storage()
        return y[:2] * 1

    assert traced(model, torch.ones(4)).provenance.verified


def test_a_large_tensor_is_looked_at_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handed_out, "_MOST_OF_ONE", 8 * 4096)

    def model(x: Tensor, at: int) -> Tensor:
        y = x * 2
        y.numpy()[at] = 7
        return y

    size = 1 << 18
    whole = torch.ones(size)
    assert tl.trace(model, (whole, 0)).provenance.verification_reason == "write_through_numpy"
    assert tl.trace(model, (whole, size - 1)).provenance.verification_reason == "write_through_numpy"


def test_what_did_not_change_is_summed_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sums: list[int] = []
    summed = zlib.crc32
    monkeypatch.setattr(handed_out.zlib, "crc32", lambda octets: sums.append(len(octets)) or summed(octets))

    def model(x: Tensor) -> Tensor:
        for _ in range(5):
            x.numpy().sum()
        x.add_(1)
        return x + x.numpy().sum()

    assert traced(model).provenance.verified
    assert sums == [16] * 4  # as it left, around the write, at the end


def test_a_storage_can_still_grow_after_it_was_handed_out() -> None:
    def model(x: Tensor) -> Tensor:
        y = x * 2
        y.untyped_storage()
        return y.resize_(6)[:4]

    trace = traced(model)
    assert trace["resize_1"].shape == (6,)
    assert trace.output.tolist()[:3] == [2 * value for value in trace["input_1"].out.tolist()[:3]]


def test_what_left_on_another_storage_is_not_mistaken() -> None:
    def model(x: Tensor) -> Tensor:
        for _ in range(20):
            y = x * 2
            y.numpy().sum()
            del y
        return x + 1

    assert traced(model).provenance.verified


@pytest.mark.parametrize("make", CANNOT_BE_SEEN, ids=lambda make: make.__name__)
def test_what_docs_say_cannot_be_seen(make: Any) -> None:
    """If one of these fails, the limit is gone: take it out of docs/limits.md."""
    assert tl.trace(make(), (floats(3), floats(3))).provenance.verified


def test_input_that_shares_memory_with_a_constant() -> None:
    array = np.ones(4, dtype="float32")
    trace = traced(lambda x: x + torch.from_numpy(array), torch.from_numpy(array))
    assert host_edges(trace) == [("input_1:1", "source_1:1")]


def test_nothing_of_ours_is_a_read() -> None:
    layer = nn.Linear(4, 4)
    trace = traced(lambda x: layer(x) + floats(4))
    assert not trace._reader.record.reads and not trace._reader.ledger.handed_out


def test_addresses_can_be_asked_for() -> None:
    trace = traced(lambda x: [ctypes.c_float.from_address(x.data_ptr()).value, x + 1][1])
    assert trace.provenance.verified and trace.inputs[0].reads == ("data_ptr",)


def hands_out_row_by_row(x: Tensor) -> Tensor:
    y = torch.zeros(100, 3)
    for row in y:
        row.numpy()
        row.fill_(1)
    return y + x


def test_a_write_is_checked_against_what_it_reaches_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    sums: list[int] = []
    monkeypatch.setattr(handed_out.zlib, "crc32", lambda octets, *_: sums.append(1) or 0)
    assert tl.trace(hands_out_row_by_row, floats(3)).provenance.verified
    assert len(sums) <= 4 * 100 + 100


def test_when_nothing_is_watched_any_more_the_trace_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handed_out, "_MOST_OF_ALL", 1000)
    (note,) = tl.trace(hands_out_row_by_row, floats(3)).notes
    assert note == "So much memory was handed out that later writes beside torch were not looked for."
