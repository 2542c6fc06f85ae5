"""A loaded trace answers what the saved one answers: every property, every value, to the bit."""

from __future__ import annotations

import copy
import gc
import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, note, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import torchlens as tl
from tests.programs import in_place, random_source
from tests.programs.answers import assert_same_answers, round_trip
from tests.programs.examples import EXAMPLES, floats
from tests.programs.random_source import Program
from torchlens.errors import InputError, MissingValueError, NotSavedError, OptionError, PathTakenError

OPTIONS: dict[str, Callable[[], dict[str, Any]]] = {
    "everything": dict,
    "nothing": lambda: {"save": []},
    "some": lambda: {"save": tl.func("linear") | tl.func("add") | tl.func("__getitem__")},
    "copies": lambda: {"capture": tl.options.CaptureOptions(copy=True)},
    "stopped": lambda: {"stop_after": tl.where(lambda op: op.kind == "call")},
}


def traced_example(name: str, **options: Any) -> Any:
    example = EXAMPLES[name]
    torch.manual_seed(0)
    return tl.trace(example.build(), example.inputs(), input_kwargs=example.kwargs(), **options)


@pytest.mark.parametrize("kept", ["everything", "nothing", "some", "copies"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(name: str, kept: str, tmp_path: Path) -> None:
    trace = traced_example(name, **OPTIONS[kept]())
    loaded = round_trip(trace, tmp_path / "run.tlens", params=True)
    assert assert_same_answers(loaded, trace, printed=kept == "everything") > 100
    assert str(loaded.check()) == str(trace.check())


@pytest.mark.parametrize("name", ["Looped", "WritesThroughViews", "GivesModelOutput", "LSTM"])
def test_a_loaded_trace_is_saved_like_any_other(name: str, tmp_path: Path) -> None:
    trace = traced_example(name)
    once = round_trip(trace, tmp_path / "once.tlens", params=True)
    twice = round_trip(once, tmp_path / "twice", params=True)
    assert_same_answers(twice, trace)


@pytest.mark.parametrize("program", in_place.PROGRAMS, ids=lambda program: program.__name__)
def test_values_that_were_written_over(program: Callable[[Tensor], Tensor], tmp_path: Path) -> None:
    trace = tl.trace(program, in_place.grid(3, 4))
    loaded = round_trip(trace, tmp_path / "run.tlens")
    assert_same_answers(loaded, trace)
    assert str(loaded.check()) == str(trace.check())


def trip_of(program: Program, directory: Path, **options: Any) -> None:
    note(program.source)
    trace = tl.trace(program.build(), program.inputs(), **options)
    path = directory / "run.tlens"
    path.unlink(missing_ok=True)
    loaded = round_trip(trace, path, params=True)
    assert_same_answers(loaded, trace, printed=False)
    assert str(loaded.check()) == str(trace.check())


@given(st.booleans().flatmap(random_source.programs), st.sampled_from(sorted(OPTIONS)))
@settings(max_examples=60)
def test_random_programs(tmp_path_factory: pytest.TempPathFactory, program: Program, kept: str) -> None:
    options = OPTIONS[kept]()
    trip_of(program, tmp_path_factory.getbasetemp(), **options)


def linear() -> Any:
    torch.manual_seed(0)
    return tl.trace(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), floats(2, 3))


def test_without_parameters_their_shapes_are_there_and_their_values_say_so(tmp_path: Path) -> None:
    trace = linear()
    loaded = round_trip(trace, tmp_path / "run.tlens")
    weight = loaded.params["0.weight"]
    assert (weight.shape, weight.dtype, weight.numel, weight.trainable) == ((4, 3), torch.float32, 12, True)
    with pytest.raises(MissingValueError, match=r"value of 0.weight is not in the file.*params=True"):
        _ = weight.value
    with pytest.raises(MissingValueError, match="params=True"):
        _ = loaded["linear_1"].args[1].out
    report = loaded.check()
    assert report and [finding.about for finding in report.unchecked] == ["linear_1:1"]
    assert str(loaded.summary()) == str(trace.summary())


class MultipliesByItsWeight(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.t()


def test_a_view_of_a_parameter_is_no_back_door(tmp_path: Path) -> None:
    layer = MultipliesByItsWeight(3, 4)
    trace = tl.trace(layer, floats(2, 3))
    loaded = round_trip(trace, tmp_path / "without.tlens")
    with pytest.raises(MissingValueError, match="lies in a parameter"):
        _ = loaded["t_1"].out
    assert torch.equal(loaded["matmul_1"].out, trace["matmul_1"].out)
    whole = round_trip(trace, tmp_path / "with.tlens", params=True)
    assert torch.equal(whole["t_1"].out, layer.weight.t())


def test_what_was_changed_after_the_run_is_not_written_as_if_it_had_not(tmp_path: Path) -> None:
    trace = linear()
    trace.output.detach().add_(1)
    loaded = round_trip(trace, tmp_path / "run.tlens")
    with pytest.raises(MissingValueError, match="changed in place by something the capture did not see"):
        _ = loaded["relu_1"].out
    assert torch.equal(loaded["linear_1"].out, trace["linear_1"].out)


def test_writing_into_a_loaded_value_shows_and_leaves_the_file(tmp_path: Path) -> None:
    trace = linear()
    loaded = round_trip(trace, tmp_path / "run.tlens")
    loaded["linear_1"].out.add_(1)
    with pytest.raises(tl.errors.OverwrittenError, match="changed in place"):
        _ = loaded["linear_1"].out
    assert torch.equal(tl.load(tmp_path / "run.tlens")["linear_1"].out, trace["linear_1"].out)


def test_a_file_has_no_autograd_graph(tmp_path: Path) -> None:
    loaded = round_trip(linear(), tmp_path / "run.tlens")
    assert loaded["linear_1"].requires_grad and not loaded["linear_1"].out.requires_grad
    assert loaded["input_1"].gradient_edge is None
    with pytest.raises(NotSavedError, match="autograd graph is not in a file"):
        _ = loaded["linear_1"].gradient_edge


def test_a_failed_run(tmp_path: Path) -> None:
    model, x, y = nn.Linear(3, 3), floats(2, 3), floats(2, 2)
    with pytest.raises(RuntimeError, match="shapes"), tl.capture(model) as trace:
        model(x) @ y
    loaded = round_trip(trace, tmp_path / "run.tlens", params=True)
    assert_same_answers(loaded, trace)
    assert loaded.status == "failed" and "shapes" in loaded.error.message


def test_a_block_with_two_models(tmp_path: Path) -> None:
    named = {"a": nn.Linear(3, 3), "b": nn.Linear(3, 3)}
    x, y = floats(2, 3), floats(1, 3)
    with tl.capture(named) as trace:
        named["b"](named["a"](x) * 2)
        named["a"](y)
    assert_same_answers(round_trip(trace, tmp_path / "run", params=True), trace)


def many_types() -> list[Tensor]:
    real = torch.arange(6.0).reshape(2, 3)
    kinds = (
        torch.bfloat16,
        torch.float16,
        torch.float64,
        torch.int8,
        torch.bool,
        torch.complex64,
        torch.float8_e5m2,
    )
    return (
        [real.to(kind) for kind in kinds]
        + [
            real.to(torch.complex64).conj(),
            torch._neg_view(real),
            real.t(),
            real[:, 1:].expand(4, 2, 2),
            torch.empty(0, 3),
            torch.tensor(float("nan")),
            torch.empty(2, 3, device="meta"),
            torch.quantize_per_tensor(real, 0.1, 3, torch.quint8),
            torch.quantize_per_channel(real, torch.tensor([0.1, 0.2]), torch.tensor([0, 1]), 0, torch.qint8),
            real.to_sparse(),
            real.to_sparse_csr(),
            real.to_sparse_csc(),
            real.to_sparse_bsr((1, 3)),
            torch.sparse_csr_tensor(
                [0, 2, 3], [2, 0, 1], real[0], (2, 3), check_invariants=False
            ),  # not sorted
            torch.nested.nested_tensor([real, real[:1]]),
        ]
    )


def sort_of(value: Tensor) -> str:
    plain = value.layout is torch.strided and not value.is_nested
    return f"{value.dtype} {value.layout} {value.stride() if plain else ''}"


@pytest.mark.parametrize("value", many_types(), ids=sort_of)
def test_tensors_of_every_sort(value: Tensor, tmp_path: Path) -> None:
    trace = tl.trace(lambda x: x.clone(), value)
    loaded = round_trip(trace, tmp_path / "run.tlens")
    assert_same_answers(loaded, trace)
    assert str(loaded.check()) == str(trace.check())


def test_a_path_that_is_taken_stays_as_it_is(tmp_path: Path) -> None:
    for name in ("file.tlens", "directory"):
        path = tmp_path / name
        tl.save(linear(), path)
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(PathTakenError, match="exists already"):
            tl.save(linear(), path)
        assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", ["run.tlens", "run"])
def test_nothing_is_left_of_a_save_that_fails(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(tl.errors.UnwritablePathError, match="No space left"):
        tl.save(linear(), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_trace_or_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"tl.save writes a trace, not a Linear"):
        tl.save(nn.Linear(1, 1), tmp_path / "run.tlens")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="path=3 is no path"):
        tl.save(linear(), 3)  # type: ignore[arg-type]
    with pytest.raises(tl.errors.PathNotFoundError, match=r"give the path that tl\.save wrote"):
        tl.load(tmp_path / "nothing.tlens")


def test_the_same_trace_gives_the_same_bytes(tmp_path: Path) -> None:
    trace = traced_example("WritesThroughViews")
    for name in ("a.tlens", "b.tlens"):
        tl.save(trace, tmp_path / name)
    assert (tmp_path / "a.tlens").read_bytes() == (tmp_path / "b.tlens").read_bytes()


def test_a_loaded_trace_needs_no_model_and_no_file_once_it_is_freed(tmp_path: Path) -> None:
    loaded = round_trip(linear(), tmp_path / "run.tlens")
    value = loaded["relu_1"].out
    del loaded
    kept = copy.deepcopy(value)
    (tmp_path / "run.tlens").unlink()  # the mapping holds it
    assert torch.equal(value, kept)


def test_a_loaded_trace_is_freed_without_the_collector(tmp_path: Path) -> None:
    gc.collect()
    gc.disable()
    try:
        loaded = round_trip(linear(), tmp_path / "run.tlens", params=True)
        assert str(loaded.summary()) and loaded.check() and loaded.graph and loaded.to_arrow()
        held = weakref.ref(loaded._reader), weakref.ref(loaded._reader.tensor(0, 0))
        del loaded
        assert [ref() for ref in held] == [None, None]
    finally:
        gc.enable()
