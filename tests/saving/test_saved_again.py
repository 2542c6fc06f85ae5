"""What a breaker found: traces whose values are partly gone, odd outputs, and numbers that fit nowhere."""

from __future__ import annotations

import dataclasses
import shutil
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests.programs.answers import assert_same_answers, round_trip
from torchlens.errors import MissingValueError


def replaced_data(x: Tensor) -> Tensor:
    y = x.clone()
    y.data.zero_()
    y.set_(x * 7)
    return y + 1


def moved_data(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.clone()
    v = y[:2]
    y.data = x * 2
    y.add_(1)
    return y, v


def changed_sparse(x: Tensor) -> Tensor:
    s = x.to_sparse()
    s._values().mul_(2)
    return s


def jagged(x: Tensor) -> Tensor:
    return torch.nested.as_nested_tensor([x, x[:1]], layout=torch.jagged) * 2


PROGRAMS: list[tuple[Callable[[Tensor], Any], Tensor]] = [
    (replaced_data, torch.ones(2)),
    (moved_data, torch.ones(3)),
    (changed_sparse, torch.eye(3)),
    (jagged, torch.ones(2, 3)),
]


def differs_rightly(question: str, found: Any, live: Any) -> bool:
    """What the live trace could not read, or not tell to be changed, is missing in the loaded one."""
    return (
        found in ("MissingValueError", "NotSavedError")
        or "MissingValueError" in str(found)
        or (question.startswith("str(") or question == "summary")
    )


@pytest.mark.parametrize(("program", "x"), PROGRAMS, ids=lambda each: getattr(each, "__name__", ""))
def test_a_value_that_is_missing_stays_missing(
    program: Callable[[Tensor], Any], x: Tensor, tmp_path: Path
) -> None:
    trace = tl.trace(program, x)
    once = round_trip(trace, tmp_path / "once", params=True)
    twice = round_trip(once, tmp_path / "twice", params=True)
    assert_same_answers(once, trace, without=differs_rightly)
    assert_same_answers(twice, once)
    assert bool(trace.check()) == bool(once.check()) == bool(twice.check())
    assert [str(f) for f in trace.check().failed] == [str(f) for f in once.check().failed]


def test_what_was_changed_or_withheld_says_so_after_any_number_of_saves(tmp_path: Path) -> None:
    layer = nn.Linear(2, 2)
    trace = tl.trace(layer, torch.ones(1, 2))
    trace.output.detach().add_(1)
    first = round_trip(trace, tmp_path / "1")
    third = round_trip(round_trip(first, tmp_path / "2", params=True), tmp_path / "3", params=True)
    for loaded in (first, third):
        with pytest.raises(MissingValueError, match="changed in place by something"):
            _ = loaded["linear_1"].out
        with pytest.raises(MissingValueError, match=r"saved without parameters"):
            _ = loaded.params["weight"].value
        assert loaded.check()


def test_saving_and_loading_inside_a_capture_leave_no_ops(tmp_path: Path) -> None:
    trace = tl.trace(nn.Linear(2, 2), torch.ones(1, 2))
    model, x = nn.ReLU(), torch.ones(2)
    with tl.capture(model) as block:
        tl.save(trace, tmp_path / "run.tlens", params=True)
        loaded = tl.load(tmp_path / "run.tlens")
        model(x)
    assert [op.label for op in block.ops] == ["input_1:1", "relu_1:1", "output_1:1"]
    assert block.provenance.verified
    assert_same_answers(loaded, trace)


def test_a_lazy_module_that_never_ran(tmp_path: Path) -> None:
    class Lazy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(2, 2), nn.LazyLinear(3)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x)

    trace = tl.trace(Lazy(), torch.ones(1, 2))
    loaded = round_trip(trace, tmp_path / "run.tlens", params=True)
    assert str(loaded.summary()) == str(trace.summary())
    with pytest.raises(RuntimeError, match="shape"):
        _ = loaded.params["unused.weight"].shape


@dataclasses.dataclass
class Constant:
    a: Any
    kind: ClassVar[int] = 4


@dataclasses.dataclass(slots=True)
class Slotted:
    a: Any
    b: Any = None


Renamed = namedtuple("Renamed", "a class", rename=True)
Hidden = dataclasses.make_dataclass("Hidden", ["__a", "b"])


@pytest.mark.parametrize(
    "make",
    [Constant, lambda y: Slotted(y, [y]), lambda y: Renamed(y, 1), lambda y: Hidden(y, 2)],
    ids=["class variable", "slots", "renamed fields", "double underscore"],
)
def test_outputs_of_odd_classes(make: Callable[[Tensor], Any], tmp_path: Path) -> None:
    trace = tl.trace(lambda x: make(x * 2), torch.ones(2))
    loaded = round_trip(trace, tmp_path / "run.tlens")
    assert loaded.check() and len(loaded.outputs) == len(trace.outputs)
    if make is Constant:
        assert [field.name for field in dataclasses.fields(loaded.output)] == ["a"]
    assert torch.equal(loaded.outputs[0].out, torch.full((2,), 2.0))


@pytest.mark.parametrize(
    ("program", "x"),
    [
        (lambda x: x @ x, torch.empty(2**21, 2**21, device="meta")),
        (lambda x: x.expand(2**40, 2**22)[0, 0], torch.ones(1)),
        (lambda x: x.reshape([1] * 65), torch.ones(1)),
        (lambda x: x + 1, torch.empty(2**60, device="meta")),
        (lambda x: x.as_strided((0, 3), (1, 1), 5), torch.ones(3)),
    ],
    ids=["FLOPs", "bytes", "dimensions", "meta", "empty view past its storage"],
)
def test_numbers_that_fit_nowhere(program: Callable[[Tensor], Tensor], x: Tensor, tmp_path: Path) -> None:
    trace = tl.trace(program, x)
    assert_same_answers(round_trip(trace, tmp_path / "run.tlens"), trace, printed=False)


def test_an_integer_of_thousands_of_digits(tmp_path: Path) -> None:
    class Passes(nn.Module):
        def forward(self, x: Tensor, n: int) -> Tensor:
            return x + n % 7

    trace = tl.trace(Passes(), (torch.ones(2), 10**4301))
    loaded = round_trip(trace, tmp_path / "run.tlens")
    assert loaded.module_calls[":1"].args[1] == 10**4301


def test_values_of_a_directory_that_is_gone(tmp_path: Path) -> None:
    trace = tl.trace(nn.ReLU(), torch.ones(3), storage=tl.to_disk(tmp_path / "values"))
    shutil.rmtree(tmp_path / "values")
    loaded = round_trip(trace, tmp_path / "run.tlens")
    with pytest.raises(MissingValueError, match="values"):
        _ = loaded["input_1"].out
    assert torch.equal(loaded.output, torch.ones(3))


def test_a_hidden_file(tmp_path: Path) -> None:
    tl.save(tl.trace(nn.ReLU(), torch.ones(3)), tmp_path / ".tlens")
    assert (tmp_path / ".tlens").is_file() and tl.load(tmp_path / ".tlens").ops


def test_a_value_expanded_beyond_any_memory_is_checked(tmp_path: Path) -> None:
    trace = tl.trace(lambda x: x.expand(2**40, 2**20)[0, 0] + 1, torch.randn(1))
    assert trace.check() and round_trip(trace, tmp_path / "run.tlens").check()
