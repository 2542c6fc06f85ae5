"""The first op at which two runs part: found, named, explained; and the false result where there is none."""

from __future__ import annotations

import copy
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests import models
from tests.programs.reading import compiled, floats
from torchlens.comparing.divergence import Divergence, NoDivergence
from torchlens.report.text import as_text

INF, NAN = math.inf, math.nan


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(4, 8)
        self.norm = nn.LayerNorm(8)
        self.down = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(torch.tanh(self.norm(self.up(x))))


def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


def diverged(a: Any, b: Any, **options: Any) -> Divergence:
    found = tl.Bundle({"a": a, "b": b}).first_divergence("a", "b", **options)
    assert isinstance(found, Divergence) and found
    return found


def agreed(a: Any, b: Any, **options: Any) -> NoDivergence:
    found = tl.Bundle({"a": a, "b": b}).first_divergence("a", "b", **options)
    assert isinstance(found, NoDivergence) and not found
    return found


def test_there_is_none() -> None:
    a, b = tl.trace(net(), floats(2, 4)), tl.trace(net(), floats(2, 4))
    found = agreed(a, b)
    assert (found.compared, list(found.not_compared)) == (len(a.ops), [])
    assert str(found) == "a, b · no divergence among 6 compared values"


def test_a_changed_weight() -> None:
    changed = net()
    with torch.no_grad():
        changed.down.weight[1, 3] += 0.5
    a, b = tl.trace(net(), floats(2, 4)), tl.trace(changed, floats(2, 4))
    found = diverged(a, b)
    assert (found.a.label, found.b.label, found.by) == ("linear_2:1", "linear_2:1", "site")
    assert (found.a.module, found.a.module_type, found.compared) == ("down", "Linear", 4)
    apart = (a["linear_2"].out - b["linear_2"].out).abs()
    assert found.excess is not None and (found.excess.count, found.excess.of) == (2, 4)
    worst = found.excess.index
    assert apart[worst] == apart.max()
    assert (found.excess.a, found.excess.b) == (a["linear_2"].out[worst], b["linear_2"].out[worst])
    assert found.inputs.ops == "agree" and list(found.inputs.parents_a) == ["tanh_1:1"]
    assert found.inputs.params == "differ" and list(found.inputs.differing_params) == ["down.weight"]
    assert not found.inputs.starts_here
    assert "parameters they differ: down.weight" in str(found)


def test_a_changed_argument() -> None:
    changed = net()
    changed.norm.eps = 0.1
    found = diverged(tl.trace(net(), floats(2, 4)), tl.trace(changed, floats(2, 4)))
    assert found.a.label == "layer_norm_1:1" and found.inputs.params == "agree"
    assert found.inputs.arguments is not None and "1e-05" in found.inputs.arguments[0]
    assert "0.1" in found.inputs.arguments[1] and not found.inputs.starts_here


TEXT = """
def run(x):
    x = torch.sin(x)
    x = scale(x)
    return torch.cos(x)
"""


def test_other_code_behind_the_same_call() -> None:
    def run(scale: Any) -> Any:
        names = compiled(TEXT, "model.py")
        names["scale"] = scale
        return tl.trace(names["run"], floats(2, 4))

    class Twice(torch.autograd.Function):
        factor = 2.0

        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * Twice.factor

    a = run(Twice.apply)
    Twice.factor = 3.0
    found = diverged(a, run(Twice.apply))
    assert found.a.label == found.b.label == "mul_1:1"
    assert found.inputs.ops == "agree" and found.inputs.params == "none"
    assert found.inputs.arguments == ("2.0", "3.0")


def test_it_starts_at_an_op_whose_inputs_agree() -> None:
    model = nn.Dropout(0.5)
    a, b = (tl.trace(model, torch.ones(64), capture=tl.options.CaptureOptions(seed=seed)) for seed in (0, 1))
    found = diverged(a, b)
    assert found.a.label == "dropout_1:1" and found.inputs.starts_here
    assert re.search(r"^so +the difference starts here$", str(found), re.M)
    assert any("dropout" in line.text for line in found.a.call_site)


def test_other_inputs() -> None:
    found = diverged(tl.trace(torch.sin, floats(2)), tl.trace(torch.sin, floats(2) + 1))
    assert found.a.label == "input_1:1" and found.inputs.ops == "none" and found.compared == 0


def test_it_is_the_first_in_the_order_of_the_first_run() -> None:
    def run(shift: float) -> Any:
        return tl.trace(lambda x: torch.cos(torch.sin(x) + shift) * (torch.tanh(x) + shift), floats(4))

    found = diverged(run(0.0), run(0.5))
    assert found.a.label == "add_1:1"


def test_what_is_in_one_run_only_before_it() -> None:
    a = tl.trace(lambda x: torch.cos(torch.sin(x)), floats(4))
    b = tl.trace(lambda x: torch.cos(torch.exp(x)), floats(4))
    found = diverged(a, b)
    assert found.a.label == "cos_1:1"
    assert (list(found.only_in_a), list(found.only_in_b)) == (["sin_1:1"], ["exp_1:1"])
    assert found.inputs.ops == "differ"
    assert "they are other ops: sin_1:1; exp_1:1" in str(found)


def test_the_tolerance_is_that_of_the_coarser_dtype() -> None:
    model = net()
    a = tl.trace(model, floats(2, 4))
    b = tl.trace(copy.deepcopy(model).double(), floats(2, 4).double())
    assert agreed(a, b).compared == len(a.ops)
    found = diverged(a, b, tolerance=0.0)
    assert found.tolerance == (0, 0) and found.inputs.params in ("agree", "none")


@pytest.mark.parametrize(
    ("tolerance", "differs"),
    [(0.2, False), (0.04, True), ((0.2, 0.0), False), ((0.0, 0.2), False), ((0, 0.05), True)],
)
def test_an_explicit_tolerance(tolerance: Any, differs: bool) -> None:
    a, b = tl.trace(torch.sin, torch.tensor([1.0])), tl.trace(torch.sin, torch.tensor([1.1]))
    assert bool(tl.Bundle({"a": a, "b": b}).first_divergence("a", "b", tolerance=tolerance)) is differs


@pytest.mark.parametrize(
    "tolerance", [-1, math.nan, math.inf, (1,), (1, -1), (1, 2, 3), "1e-3", True, [1, 2]]
)
def test_a_tolerance_that_is_none(tolerance: Any) -> None:
    a = tl.trace(torch.sin, floats(2))
    with pytest.raises(
        tl.errors.OptionError, match=r"a tolerance is a number from 0, \(relative, absolute\)"
    ):
        tl.Bundle({"a": a, "b": a}).first_divergence("a", "b", tolerance=tolerance)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite(value: float) -> None:
    def run(at: float) -> Any:
        return tl.trace(lambda x: torch.where(x > 0, x * 1, at), torch.tensor([-1.0, 1.0]))

    found = diverged(run(0.0), run(value))
    assert found.a.label == "where_1:1" and found.excess is not None
    assert (found.excess.count, found.excess.index, found.excess.a) == (1, (0,), 0)
    assert found.b.statistics.nan + found.b.statistics.infinite == 1
    assert agreed(run(value), run(value)) is not None


def test_integers_and_booleans_have_to_be_equal() -> None:
    def run(shift: int) -> Any:
        return tl.trace(lambda x: (x > 0, x.long() + shift), torch.tensor([1e6]))

    assert diverged(run(0), run(1)).a.label == "add_1:1"


def test_integers_that_float64_does_not_tell_apart() -> None:
    def run(number: int) -> Any:
        return tl.trace(lambda x: x + 1, torch.tensor([0, number]))

    found = diverged(run(2**53), run(2**53 + 1))
    assert found.a.label == "input_1:1"
    assert found.excess is not None
    assert (found.excess.count, found.excess.index) == (1, (1,))


def test_other_shapes_at_one_place() -> None:
    a, b = (tl.trace(lambda x, n=n: x.repeat(n), torch.ones(2)) for n in (1, 2))
    found = diverged(a, b)
    assert found.a.label == "repeat_1:1" and found.excess is None
    assert "the shapes are 2 and 4" in str(found)


def test_values_that_are_gone_are_counted_and_skipped() -> None:
    model = net()
    a, b = tl.trace(model, floats(2, 4), save=["linear_2"]), tl.trace(model, floats(2, 4))
    found = agreed(a, b)
    assert found.compared == 2 and len(found.not_compared) == 4
    assert "no divergence among 2 compared values (4 could not be compared)" in str(found)
    with torch.no_grad():
        changed = copy.deepcopy(model)
        changed.norm.bias += 1
    late = diverged(a, tl.trace(changed, floats(2, 4)))
    assert re.search(r"^before it +0 values agree, 4 could not be compared$", str(late), re.M)
    assert late.a.label == "linear_2:1" and late.inputs.ops == "not known" and not late.inputs.starts_here
    nothing = agreed(tl.trace(torch.sin, floats(2).to("meta")), tl.trace(torch.sin, floats(2).to("meta")))
    assert nothing.compared == 0


def test_why_parameters_could_not_be_compared(tmp_path: Path) -> None:
    changed = net()
    with torch.no_grad():
        changed.down.bias += 1
    tl.save(tl.trace(changed, floats(2, 4)), tmp_path / "changed.tlens")
    found = diverged(tl.trace(net(), floats(2, 4)), tl.load(tmp_path / "changed.tlens"))
    assert found.inputs.params == "not known" and not found.inputs.starts_here
    assert found.inputs.params_reason is not None
    assert found.inputs.params_reason.startswith("b: the value of down.weight is not in the file: ")
    assert f"parameters they could not be compared: {found.inputs.params_reason}" in as_text(found, 300)


def test_parameters_of_one_model_are_shared() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout())
    a, b = (tl.trace(model, floats(2, 4), capture=tl.options.CaptureOptions(seed=0)) for _ in range(2))
    assert agreed(a, b) is not None
    model[0].register_forward_hook(lambda module, args, output: output + 1)
    moved = tl.trace(model, floats(2, 4), capture=tl.options.CaptureOptions(seed=0))
    found = diverged(a, moved)
    assert list(found.only_in_b) == ["add_1:1"]


def test_the_weights_of_a_plain_function() -> None:
    """They are parameters of the one run and sources of the other: what is read cannot be told to agree."""
    model = net()
    weight, bias = model.up.weight.detach() * 2, model.up.bias.detach()
    a = tl.trace(model, floats(2, 4))
    b = tl.trace(lambda x: nn.functional.linear(x, weight, bias), floats(2, 4))
    found = diverged(a, b)
    assert (found.inputs.ops, found.inputs.params) == ("not known", "not known")
    assert found.inputs.params_reason == "a reads 2 of them, b 0"


def test_memory_that_nothing_has_written_is_no_difference() -> None:
    def run(shift: float) -> Any:
        def fill(x: Tensor) -> Tensor:
            total = torch.empty(4)
            return torch.add(x, shift, out=total)

        return tl.trace(fill, floats(4))

    found = agreed(run(1), run(1))
    assert [label for label, _ in found.not_compared] == ["empty_1:1"]
    parted = diverged(run(1), run(2))
    assert parted.a.label == "add_1:1" and parted.inputs.ops == "agree"
    assert parted.inputs.arguments == ("1", "2")


def test_in_place_chains() -> None:
    model = models.WritesThroughViews()
    a, b = tl.trace(model, floats(3, 4)), tl.trace(model, floats(3, 4))
    assert agreed(a, b).compared == len(a.ops)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([1.0, 3, NAN, INF, -INF], "5 float32, min 1, max 3, mean 2, std 1.414, 1 NaN, 2 Inf"),
        ([3 + 4j, 0j], "2 complex64, magnitudes, min 0, max 5, mean 2.5, std 3.536"),
        ([True], "1 bool, min 1, max 1, mean 1"),
        ([], "0 float32"),
    ],
)
def test_a_value_in_numbers(value: list[Any], text: str) -> None:
    whole = tl.trace(lambda: torch.tensor(value))
    changed = tl.trace(lambda: torch.tensor([*value, False]))
    lines = as_text(diverged(whole, changed), 100).splitlines()
    assert f"value {text}" in [" ".join(line.split()) for line in lines]


def test_the_page() -> None:
    changed = net()
    with torch.no_grad():
        changed.down.bias += 1
    page = as_text(diverged(tl.trace(net(), floats(2, 4)), tl.trace(changed, floats(2, 4))), 100)
    lines = page.splitlines()
    assert lines[0] == "a, b · first divergence at linear_2:1"
    assert lines[1] == "differs    4 of 4 elements, by more than 1e-05 + 1.3e-06 × the larger"
    assert lines[3:6] == [
        "before it  4 values agree",
        "inputs     they agree: tanh_1:1",
        "parameters they differ: down.bias",
    ]
    assert "a · linear_2:1 in down (Linear)" in lines and "b · linear_2:1 in down (Linear)" in lines
    assert any(line.startswith("called at linear.py:") and "F.linear(" in line for line in lines)
    as_text(
        diverged(tl.trace(net(), floats(2, 4)), tl.trace(changed, floats(2, 4))), 60, encoding="ascii"
    ).encode("ascii")
