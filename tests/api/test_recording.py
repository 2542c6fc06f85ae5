"""`record`, `pluck` and `extract`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests.programs.examples import EXAMPLES
from tests.programs.saving import assert_same_facts
from torchlens.errors import InputError, MissingKeyError, NotReachedError, NotSavedError


class Looped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Linear(4, 4)
        self.drop = nn.Dropout(0.5)
        self.pair = Pair()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            self.calls += 1
            x = torch.tanh(self.cell(self.drop(x)))
        found = self.pair(x)
        return found["sum"] + found["parts"][0]


class Pair(nn.Module):
    def forward(self, x: Tensor) -> dict[str, Any]:
        return {"sum": x + 1, "parts": [x * 2, x * 3]}


X = torch.ones(2, 4)


@pytest.fixture
def model() -> Looped:
    torch.manual_seed(0)
    return Looped()


# ---- record --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_recording_read_as_a_trace_has_its_layers_and_passes(name: str) -> None:
    example = EXAMPLES[name]
    torch.manual_seed(0)
    model = example.build()
    torch.manual_seed(1)
    recording = tl.record(model, example.inputs(), input_kwargs=example.kwargs())
    torch.manual_seed(0)
    model = example.build()
    torch.manual_seed(1)
    full = tl.trace(model, example.inputs(), input_kwargs=example.kwargs())
    assert_same_facts(recording.to_trace(), full)


def test_keeps_nothing_but_what_is_named(model: Looped) -> None:
    with pytest.raises(NotSavedError, match=r"the value of tanh_1:1 was not kept: .* save=nothing"):
        _ = tl.record(model, X).to_trace()["tanh_1:1"].out
    kept = tl.record(model, X, save="tanh_1:2").to_trace()
    assert kept["tanh_1:2"].out.shape == (2, 4)
    with pytest.raises(NotSavedError, match="save='tanh_1:2'"):
        _ = kept["tanh_1:1"].out


def test_a_recording_says_what_it_is(model: Looped) -> None:
    recording = tl.record(model, X, stop_after="tanh_1")
    assert recording.status == "halted"
    assert repr(recording) == f"<Recording, halted, {recording.num_rows} rows>"
    trace = recording.to_trace()
    recording.cleanup()
    assert trace["tanh_1"].num_passes == 1
    assert repr(recording) == "<Recording, freed by cleanup()>"
    with pytest.raises(NotSavedError, match="has freed this recording"):
        recording.to_trace()


def test_two_readings_agree(model: Looped) -> None:
    recording = tl.record(model, X, save=tl.func("tanh"))
    assert_same_facts(recording.to_trace(), recording.to_trace())


# ---- pluck and extract ---------------------------------------------------------------------------


def test_pluck_gives_what_a_trace_has(model: Looped) -> None:
    seeded = tl.options.CaptureOptions(seed=tl.trace(model, X).options.seed)
    full = tl.trace(model, X, capture=seeded)
    for site, expected in {
        "tanh_1": full["tanh_1:1"].out,
        "tanh_1:3": full["tanh_1:3"].out,
        "cell": full.module_calls["cell:1"].output,
        "cell:2": full.module_calls["cell:2"].output,
        tl.func("mul"): full["mul_1"].out,
        tl.output(): full.output,
    }.items():
        assert torch.equal(tl.pluck(model, X, site), expected), site


def test_pluck_ends_the_forward(model: Looped) -> None:
    tl.pluck(model, X, "tanh_1:2")
    assert model.calls == 2


def test_a_module_gives_what_its_caller_received(model: Looped) -> None:
    model.pair.register_forward_hook(lambda module, args, output: {**output, "more": torch.zeros(1)})
    found = tl.pluck(model.eval(), X, "pair")
    assert set(found) == {"sum", "parts", "more"}
    assert torch.equal(found["parts"][1], tl.trace(model, X)["mul_2"].out)


def test_the_root_may_be_plucked(model: Looped) -> None:
    assert torch.equal(tl.pluck(model.eval(), X, ""), model(X))


def test_a_plucked_value_belongs_to_the_graph(model: Looped) -> None:
    tl.pluck(model, X, "tanh_1:2").sum().backward()
    assert model.cell.weight.grad is not None


def test_extract_keeps_the_keys_and_their_order(model: Looped) -> None:
    found = tl.extract(model.eval(), X, ["cell:3", "tanh_1", tl.func("mul")])
    assert list(found) == ["cell:3", "tanh_1", "mul_1:1", "mul_2:1"]
    full = tl.trace(model, X)
    assert torch.equal(found["cell:3"], full["linear_1:3"].out)
    assert torch.equal(found["mul_2:1"], full["mul_2"].out)


def test_extract_ends_with_the_last_site_and_with_a_selector_at_the_end(model: Looped) -> None:
    tl.extract(model, X, ["tanh_1:2", "cell"])
    assert model.calls == 2
    tl.extract(model, X, ["cell", tl.func("tanh")])
    assert model.calls == 2 + 3


@pytest.mark.parametrize(
    ("sites", "error", "message"),
    [
        ([], InputError, "names nothing"),
        (["cell", "sin_1"], MissingKeyError, "no layer or op is called 'sin_1'"),
        ([tl.func("sin")], NotReachedError, "never came to"),
        (["cel"], MissingKeyError, "nearest: 'cell'"),
        ([3], InputError, "give a label"),
    ],
)
def test_extract_raises_for_what_never_ran(
    model: Looped, sites: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        tl.extract(model, X, sites)


def test_random_state_and_mode_are_given_back(model: Looped) -> None:
    before = torch.get_rng_state()
    tl.pluck(model, X, "cell:2")
    tl.extract(model, X, ["cell"])
    tl.record(model, X, stop_after="cell")
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training


def test_an_exception_of_the_model_comes_through() -> None:
    def fails(x: Tensor) -> Tensor:
        raise KeyError("mine")

    for call in (lambda: tl.pluck(fails, X, "tanh_1"), lambda: tl.record(fails, X)):
        with pytest.raises(KeyError, match="mine"):
            call()
