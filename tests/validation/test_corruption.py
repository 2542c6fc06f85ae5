"""A record that was tampered with is caught, and what is wrong with it is named."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchlens as tl
from torchlens._trace.reader import TraceReader
from torchlens._values.geometry import storage_key
from torchlens.validation.invariants import RULES


class Workshop(nn.Module):
    """In-place writes through views, dropout, running statistics, a loop, several outputs, autocast."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.first(x)  # linear_1
        F.relu(h, inplace=True)  # relu_1
        h = self.norm(h)  # batch_norm_1
        for _ in range(2):
            h = torch.tanh(h)  # tanh_1
        low, high = h.chunk(2, dim=1)  # chunk_1, chunk_2
        gap = low - high  # sub_1
        scaled = gap.mul(2)  # mul_1
        buffer = torch.zeros(4, 2)
        buffer[0] = 1.0
        row = buffer[1]  # getitem_1
        row.add_(3)  # add_2
        mixed = buffer.cos()  # cos_1
        dropped = F.dropout(scaled, 0.5, training=True)  # dropout_1
        with torch.autocast("cpu", dtype=torch.bfloat16):
            cast = self.second(h)  # linear_2
        total = torch.softmax(h, dim=-1)  # softmax_1
        return dropped + mixed, self.second(total) + cast.float()


@dataclass
class Tampering:
    """A trace's reader, and the ways to falsify it."""

    reader: TraceReader

    def op(self, label: str) -> int:
        return self.reader.op_index[label]

    def row(self, label: str) -> int:
        return self.reader.numbers.rows[self.op(label)]

    def set_column(self, name: str, label: str, value: Any) -> None:
        column = list(getattr(self.reader.rows, name))
        column[self.row(label)] = value
        setattr(self.reader.rows, name, column)

    def set_parents(self, label: str, parents: dict[str, str]) -> None:
        op = self.op(label)
        self.reader.lineage.parents[op] = tuple((at, self.op(parent)) for at, parent in parents.items())
        vars(self.reader).pop("parents", None)

    def writes_of(self, label: str) -> list[Any]:
        return self.reader.ledger.writes[storage_key(self.reader.rows.out[self.row(label)])]


def swap_parents(t: Tampering) -> None:
    t.set_parents("sub_1", {"0": "chunk_2", "1": "chunk_1"})


def drop_an_edge(t: Tampering) -> None:
    t.set_parents("sub_1", {"0": "chunk_1"})


def skip_an_in_place_write(t: Tampering) -> None:
    t.set_parents("cos_1", {"0": "setitem_1"})


def take_another_op_as_parent(t: Tampering) -> None:
    t.set_parents("tanh_1:2", {"0": "batch_norm_1"})


def point_an_edge_forward(t: Tampering) -> None:
    t.set_parents("mul_1", {"0": "dropout_1"})


def keep_a_stale_value(t: Tampering) -> None:
    t.set_column("out", "tanh_1:2", t.reader.rows.out[t.row("tanh_1:1")])


def change_a_kept_value(t: Tampering) -> None:
    t.reader.rows.out[t.row("softmax_1")].detach().numpy()[0, 0] += 1


def drop_a_write(t: Tampering) -> None:
    writes = t.writes_of("relu_1")
    writes[:] = [write for write in writes if write.row != t.row("relu_1")]


def forget_a_write_and_its_traces(t: Tampering) -> None:
    drop_a_write(t)
    t.reader.ledger.inplace.discard((t.row("relu_1"), 0))
    for label in ("linear_1", "relu_1"):
        t.set_column("version", label, None)


def forget_what_was_written_besides(t: Tampering) -> None:
    mean = next(b for b in t.reader.record.buffers if b.addresses == ("norm.running_mean",))
    t.reader.ledger.writes[storage_key(mean.initial)].clear()


def falsify_what_was_overwritten(t: Tampering) -> None:
    (write,) = [write for write in t.writes_of("relu_1") if write.row == t.row("relu_1")]
    write.saved = write.saved + 1


def reorder_writes(t: Tampering) -> None:
    t.writes_of("setitem_1").reverse()


def say_that_an_op_wrote(t: Tampering) -> None:
    t.reader.ledger.inplace.add((t.row("softmax_1"), 0))


def change_an_argument(t: Tampering) -> None:
    args = t.reader.rows.args[t.row("mul_1")]
    t.set_column("args", "mul_1", (args[0], 3))


def change_a_keyword(t: Tampering) -> None:
    t.set_column("kwargs", "softmax_1", {"dim": 0})


def change_the_function(t: Tampering) -> None:
    t.set_column("func", "cos_1", torch.Tensor.sin)


def take_another_random_state(t: Tampering) -> None:
    states = t.reader.record.generators[t.row("dropout_1")]
    other = torch.Generator().manual_seed(12345).get_state()
    t.reader.record.generators[t.row("dropout_1")] = [(states[0][0], other)]


def forget_autocast(t: Tampering) -> None:
    t.set_column("context", "linear_2:1", t.reader.rows.context[t.row("linear_1")])


def take_another_parameter(t: Tampering) -> None:
    row = t.row("linear_1")
    (at, _), bias = t.reader.lineage.params[row]
    t.reader.lineage.params[row] = ((at, 2), bias)


def swap_outputs(t: Tampering) -> None:
    row = t.row("chunk_1")
    t.set_column("out", "chunk_1", tuple(reversed(t.reader.rows.out[row])))


def lose_a_pass(t: Tampering) -> None:
    t.reader.layering.layers[t.reader.layer_index["tanh_1"]].ops.pop()


def renumber_a_pass(t: Tampering) -> None:
    t.reader.layering.pass_of[t.op("tanh_1:2")] = 3


def repeat_a_label(t: Tampering) -> None:
    t.reader.layering.layers[t.reader.layer_index["cos_1"]].label = "mul_1"
    vars(t.reader).pop("op_labels")


def mix_two_layers(t: Tampering) -> None:
    first, second = (t.reader.layering.layers[t.reader.layer_index[n]] for n in ("tanh_1", "linear_1"))
    first.ops = sorted([*first.ops, *second.ops])
    t.reader.layering.pass_of[first.ops[0]] = 1
    for number, op in enumerate(first.ops, start=1):
        t.reader.layering.pass_of[op] = number


def end_a_call_too_early(t: Tampering) -> None:
    call = t.reader.call_index["first:1"]
    t.reader.record.module_calls[call].end = t.reader.record.module_calls[call].start


def let_a_call_outlive_its_caller(t: Tampering) -> None:
    call = t.reader.call_index["first:1"]
    t.reader.record.module_calls[call].end = len(t.reader.rows) + 1


def miscount_calls(t: Tampering) -> None:
    t.reader.record.module_calls[t.reader.call_index["second:2"]].number = 3
    vars(t.reader).pop("call_labels", None)


def move_an_op_into_another_call(t: Tampering) -> None:
    t.set_column("call", "mul_1", t.reader.call_index["first:1"])


def lower_a_version(t: Tampering) -> None:
    t.set_column("version", "add_2", 0)


def read_the_old_statistics(t: Tampering) -> None:
    record = t.reader.record
    mean = next(b for b in record.buffers if b.addresses == ("norm.running_mean",))
    first = t.reader.numbers.first
    t.reader.lineage.parents[first[mean.rows[1]]] = (("0", first[mean.rows[0]]),)
    vars(t.reader).pop("parents", None)


def lose_an_output(t: Tampering) -> None:
    t.reader.record.outputs = list(t.reader.record.outputs)[:-1]


def return_another_tensor(t: Tampering) -> None:
    t.reader.record.output = (t.reader.rows.out[t.row("mul_1")], t.reader.record.output[1])


def replace_what_a_module_returned(t: Tampering) -> None:
    t.reader.record.module_calls[t.reader.call_index["first:1"]].output = torch.zeros(4, 4)


def add_an_edge_where_no_tensor_is(t: Tampering) -> None:
    t.set_parents("sub_1", {"0": "chunk_1", "1": "chunk_2", "2": "input_1"})


def add_a_parent(t: Tampering, label: str, position: str, parent: str) -> None:
    op = t.op(label)
    t.reader.lineage.parents[op] = (*t.reader.lineage.parents[op], (position, t.op(parent)))
    vars(t.reader).pop("parents", None)


def add_a_parent_from_elsewhere(t: Tampering) -> None:
    add_a_parent(t, "sub_1", "1", "softmax_1")


def add_a_parent_that_a_newer_write_hides(t: Tampering) -> None:
    add_a_parent(t, "batch_norm_1", "0", "linear_1")


def add_a_view_that_wrote_nothing(t: Tampering) -> None:
    add_a_parent(t, "cos_1", "0", "getitem_1")


def call_an_op_a_source(t: Tampering) -> None:
    t.set_column("kind", "softmax_1", "source")


def drop_a_buffer_version(t: Tampering) -> None:
    next(b for b in t.reader.record.buffers if b.addresses == ("norm.running_mean",)).rows.pop()


def exchange_buffer_versions(t: Tampering) -> None:
    mean, var = (b for b in t.reader.record.buffers if b.addresses[0].startswith("norm.running"))
    mean.rows[:], var.rows[:] = list(var.rows), list(mean.rows)


def forget_a_root_call(t: Tampering) -> None:
    t.reader.record.root_calls = []


def let_a_module_return_what_came_later(t: Tampering) -> None:
    t.reader.record.module_calls[t.reader.call_index["first:1"]].output = t.reader.rows.out[t.row("mul_1")]


def say_that_it_failed(t: Tampering) -> None:
    t.reader.record.status = "failed"


CASES: dict[Callable[[Tampering], None], tuple[str, str]] = {
    swap_parents: ("sub_1:1", "gives another value"),
    drop_an_edge: ("sub_1:1", "argument 1 comes from no op"),
    skip_an_in_place_write: ("cos_1:1", "gives another value"),
    take_another_op_as_parent: ("tanh_1:2", "gives another value"),
    point_an_edge_forward: ("mul_1:1", "dropout_1:1 as a parent, which is not older"),
    keep_a_stale_value: ("tanh_1:2", "gives another value"),
    change_a_kept_value: ("softmax_1:1", "gives another value"),
    drop_a_write: ("relu_1:1", "version counter"),
    forget_a_write_and_its_traces: ("linear_1:1", "gives another value"),
    forget_what_was_written_besides: ("buffer_.*", r"shape \(4, 4\) instead of \(4,\)"),
    falsify_what_was_overwritten: ("linear_1:1", "gives another value"),
    reorder_writes: ("writes", "not in order"),
    say_that_an_op_wrote: ("softmax_1:1", "no write is recorded"),
    change_an_argument: ("mul_1:1", "gives another value"),
    change_a_keyword: ("softmax_1:1", "gives another value"),
    change_the_function: ("cos_1:1", "gives another value"),
    take_another_random_state: ("dropout_1:1", "gives another value"),
    forget_autocast: ("linear_2:1", "dtype torch.float32 instead of torch.bfloat16"),
    take_another_parameter: ("linear_1:1", "gives another value"),
    swap_outputs: ("chunk_1:1", "gives another value"),
    lose_a_pass: ("layers", "passes, there are"),
    renumber_a_pass: ("tanh_1", r"numbered \[1, 3\]"),
    repeat_a_label: ("mul_1:1", "two things have this label"),
    mix_two_layers: ("tanh_1", "differ in module"),
    end_a_call_too_early: ("linear_1:1", "of first:1, which did not run then"),
    let_a_call_outlive_its_caller: ("first:1", "outside the call around it"),
    miscount_calls: ("second", r"numbered \[1, 3\]"),
    move_an_op_into_another_call: ("mul_1:1", "of first:1, which did not run then"),
    lower_a_version: ("add_2:1", "version counter"),
    read_the_old_statistics: ("buffer_.*", "gives another value"),
    lose_an_output: ("outputs", "are listed"),
    return_another_tensor: ("output", "not those of the trace's outputs"),
    add_an_edge_where_no_tensor_is: ("sub_1:1", "a parent at 2, where no tensor is"),
    add_a_parent_from_elsewhere: ("sub_1:1", "softmax_1:1 as a parent at 1, of which it reads nothing"),
    add_a_parent_that_a_newer_write_hides: ("batch_norm_1:1", "linear_1:1 as a parent at 0, of which"),
    add_a_view_that_wrote_nothing: ("cos_1:1", "getitem_1:1 as a parent at 0, of which it reads nothing"),
    call_an_op_a_source: ("softmax_1:1|source_1:1", "kind 'source' and has a function"),
    drop_a_buffer_version: ("buffer_.*", "no buffer of that name lists it"),
    exchange_buffer_versions: ("buffer_.*", "no buffer of that name lists it"),
    forget_a_root_call: ("root calls", "are listed"),
    let_a_module_return_what_came_later: ("first:1", "made after it had ended"),
    say_that_it_failed: ("status", "'failed'"),
    replace_what_a_module_returned: ("first:1", "a tensor that no op has"),
}


def test_a_write_that_the_record_does_not_know_is_seen_when_it_is_made_again() -> None:
    with torch.no_grad():
        trace = tl.trace(lambda x: (x * 1).relu_(), (torch.ones(3),))
    tampering = Tampering(trace._reader)
    drop_a_write(tampering)
    trace._reader.ledger.inplace.clear()
    for label in ("mul_1", "relu_1"):
        tampering.set_column("version", label, None)
    texts = [finding.text for finding in trace.check().failed]
    assert texts == ["it writes into an argument, and the record does not say so"]


def traced() -> tl.Trace:
    torch.manual_seed(0)
    return tl.trace(Workshop(), torch.randn(4, 4))


def test_the_untouched_trace_holds() -> None:
    trace = traced()
    report = trace.check()
    assert report, report
    given = 1 + 3  # the input, and what the buffers of the normalisation held at the start
    assert report.sections["values"].checked == len(trace.ops) - given
    assert report.sections["record"].checked == len(RULES)
    assert report.unchecked == []


@pytest.mark.parametrize("tamper", CASES, ids=lambda tamper: tamper.__name__)
def test_tampering_is_caught_and_named(tamper: Callable[[Tampering], None]) -> None:
    about, text = CASES[tamper]
    trace = traced()
    _ = trace._reader.parents, trace._reader.layering, trace._reader.op_index, trace._reader.call_index
    tamper(Tampering(trace._reader))
    report = trace.check()
    assert not report
    found = [f"{finding.about}: {finding.text}" for finding in report.failed]
    assert any(re.match(f"{about}: .*{text}", line) for line in found), found
