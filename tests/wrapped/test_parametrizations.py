"""torch's parametrizations and their older kin: weights that are computed when they are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize
from torch.nn.utils import spectral_norm as old_spectral_norm
from torch.nn.utils import weight_norm as old_weight_norm

import torchlens as tl
from tests.programs.reading import floats, lint, op_labels
from tests.wrapped.agreement import agreeing

pytestmark = pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")


class Symmetric(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight.triu() + weight.triu(1).T

    def right_inverse(self, weight: Tensor) -> Tensor:
        return weight.triu()


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, weight: Tensor) -> Tensor:
        return weight * self.scale


def symmetric(layer: nn.Linear) -> None:
    parametrize.register_parametrization(layer, "weight", Symmetric())


def scaled_symmetric(layer: nn.Linear) -> None:
    symmetric(layer)
    parametrize.register_parametrization(layer, "weight", Scaled())


def cayley(layer: nn.Linear) -> None:
    parametrizations.orthogonal(layer, orthogonal_map="cayley")


NEW = [
    pytest.param(symmetric, "triu triu transpose add", "original", id="parametrize"),
    pytest.param(scaled_symmetric, "triu triu transpose add mul", "original", id="parametrize twice"),
    pytest.param(parametrizations.weight_norm, "weight_norm", "original0 original1", id="weight_norm"),
    pytest.param(parametrizations.spectral_norm, None, "original", id="spectral_norm"),
    pytest.param(
        parametrizations.orthogonal, "tril mH sub matrix_exp matmul", "original", id="orthogonal"
    ),
    pytest.param(cayley, None, "original", id="orthogonal, cayley"),
]  # fmt: skip
OLD = [
    pytest.param(old_weight_norm, "weight_norm", "weight_g weight_v", id="weight_norm"),
    pytest.param(old_spectral_norm, None, "weight_orig", id="spectral_norm"),
]
Change = Callable[[nn.Linear], Any]
MODES = [pytest.param(True, id="train"), pytest.param(False, id="eval")]


def with_changed_layer(change: Change, train: bool) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).train(train)
            change(model[0])
        return model

    return build


@pytest.mark.parametrize("train", MODES)
@pytest.mark.parametrize(("change", "types", "originals"), NEW)
def test_a_parametrization_is_a_module_of_its_own(
    change: Change, types: str | None, originals: str, train: bool
) -> None:
    first, second = agreeing(with_changed_layer(change, train), floats(3, 4))
    assert op_labels(first) == op_labels(second)
    made = first["linear_1:1"].args[1].op
    assert made.module.address.startswith("0.parametrizations.weight.")
    addresses = {f"0.parametrizations.weight.{name}" for name in originals.split()}
    assert addresses <= {param.address for param in first.params}
    assert addresses <= {param.address for op in ancestors(made) for param in op.params}
    if types is not None:
        inside = [op.type for op in first.ops if op.module and "parametrizations" in op.module.address]
        assert " ".join(t for t in inside if t != "buffer").replace(" T ", " transpose ") == types


@pytest.mark.parametrize("train", MODES)
@pytest.mark.parametrize(("change", "types", "originals"), OLD)
def test_the_older_hooks_belong_to_the_caller_of_the_layer(
    change: Change, types: str | None, originals: str, train: bool
) -> None:
    first, second = agreeing(with_changed_layer(change, train), floats(3, 4))
    assert op_labels(first) == op_labels(second)
    made = first["linear_1:1"].args[1].op
    assert made.module.address == ""
    addresses = {f"0.{name}" for name in originals.split()}
    assert addresses <= {param.address for op in ancestors(made) for param in op.params}
    if types is not None:
        assert made.type == types


def ancestors(op: Any) -> set[Any]:
    found, waiting = set(), [op]
    while waiting:
        op = waiting.pop()
        if op not in found:
            found.add(op)
            waiting += op.parents
    return found


def test_a_power_iteration_writes_new_versions_of_its_buffers_in_training_only() -> None:
    for train, versions in ((True, 2), (False, 1)):
        (trace, _) = agreeing(with_changed_layer(parametrizations.spectral_norm, train), floats(3, 4))
        assert len(trace.buffers["0.parametrizations.weight.0._v"].versions) == versions


def test_a_cached_parametrization_is_computed_once() -> None:
    model = with_changed_layer(symmetric, True)()

    def run(x: Tensor) -> Tensor:
        with parametrize.cached():
            return model[0](x) + model[0](x)

    trace = tl.trace(run, floats(3, 4))
    lint(trace)
    assert torch.equal(trace.output, run(floats(3, 4)))
    assert (trace["triu_1"].num_passes, trace["linear_1"].num_passes) == (1, 2)


def test_taking_a_parametrization_off_leaves_the_values_of_the_trace() -> None:
    model = with_changed_layer(symmetric, True)()
    trace = tl.trace(model, floats(3, 4))
    weight = model[0].weight.detach().clone()
    output = model(floats(3, 4))
    parametrize.remove_parametrizations(model[0], "weight")
    assert torch.equal(trace["linear_1:1"].args[1].out, weight)
    assert torch.equal(trace.output, output)
