"""How a run ended, and its totals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests import models
from tests.programs.examples import floats
from torchlens.report.overview import Overview


def overview_of(model: Any, *inputs: Any) -> Overview:
    return tl.trace(model, inputs).summary().overview


def totals_of(model: Any, *inputs: Any) -> dict[str, str]:
    return dict(overview_of(model, *inputs).totals)


class Raises(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.ReLU(), nn.Linear(5, 5))
        self.tail = nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.tail(self.body(x))


def test_a_failed_run_says_what_and_where() -> None:
    model = Raises()
    with pytest.raises(RuntimeError, match="cannot be multiplied"), tl.capture(model) as trace:
        model(floats(3, 4))
    overview = trace.summary().overview
    assert overview.status == "forward, failed"
    facts = overview.failure.facts
    assert facts[0] == ("raised", "RuntimeError: mat1 and mat2 shapes cannot be multiplied (3x4 and 5x5)")
    assert facts[1] == ("in", "body.1 (Linear), call body.1:1")
    path, line, rest = facts[2][1].split(":", 2)
    assert Path(path) == Path(__file__).relative_to(Path.cwd())
    assert Path(path).read_text().splitlines()[int(line.split()[0]) - 1].strip() == rest.strip()
    assert rest.strip() == "return self.tail(self.body(x))"


def test_only_the_first_line_of_a_message_is_shown() -> None:
    class Speaks(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise ValueError("first\nsecond")

    model = Speaks()
    with pytest.raises(ValueError, match="first"), tl.capture(model) as trace:
        model(floats(3))
    assert trace.summary().overview.failure.facts[0] == ("raised", "ValueError: first")


@pytest.mark.parametrize(("calls", "status"), [(0, "0 forwards"), (1, "forward"), (3, "3 forwards")])
def test_a_block_counts_its_forwards(calls: int, status: str) -> None:
    model = nn.ReLU()
    with tl.capture(model) as trace:
        torch.ones(2).exp()
        for _ in range(calls):
            model(floats(3))
    assert trace.summary().overview.status == f"{status}, complete"


def test_notes_and_unknown_origins_are_warnings() -> None:
    overview = overview_of(lambda x: x + torch.Tensor([1.0, 2.0, 3.0]), floats(3))
    assert any("unverified (unknown_origin)" in line for line in overview.warnings)
    direct = overview_of(models.CallsForwardDirectly(), floats(3, 4))
    assert any("forward was called without __call__" in line for line in direct.warnings)
    assert overview_of(nn.ReLU(), floats(3)).warnings == ()


class HasUnreached(nn.Module):
    """Calls one of its modules, uses the weight of another, and leaves the rest alone."""

    def __init__(self) -> None:
        super().__init__()
        self.called = nn.Linear(4, 4)
        self.read = nn.Linear(4, 4)
        self.aside = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.drops = nn.ModuleList(nn.Dropout() for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.called(x) @ self.read.weight


def test_modules_that_were_not_reached_are_named() -> None:
    assert totals_of(HasUnreached(), floats(3, 4))["modules"] == (
        "2 calls of 2 modules; not reached: aside (Sequential), drops (ModuleList)"
    )


def test_modules_alike_that_were_not_reached_are_counted() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.drop = nn.Dropout()

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x)

    text = totals_of(nn.Sequential(*(Block() for _ in range(3))), floats(3, 4))["modules"]
    assert text == "7 calls of 7 modules; not reached: *.drop (3 × Dropout)"


def frozen() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    model[0].requires_grad_(False)
    return model


@pytest.mark.parametrize(
    ("build", "inputs", "text"),
    [
        pytest.param(nn.ReLU, [floats(3)], "0", id="none"),
        pytest.param(lambda: nn.Linear(4, 2), [floats(3, 4)], "10, all trainable, 40 B", id="trainable"),
        pytest.param(frozen, [floats(3, 4)], "30, 10 trainable, 120 B", id="partly frozen"),
        pytest.param(
            lambda: nn.Linear(4, 2).double(), [floats(4).double()], "10, all trainable, 80 B", id="float64"
        ),
        pytest.param(
            models.TiedWeights,
            [torch.tensor([[1, 2]])],
            "28, all trainable, 112 B, 1 tensor under several addresses counted once",
            id="tied",
        ),
    ],
)  # fmt: skip
def test_parameters(build: Callable[[], nn.Module], inputs: list[Tensor], text: str) -> None:
    assert totals_of(build(), *inputs)["parameters"] == text


def test_parameters_of_a_lazy_module_that_did_not_run() -> None:
    class Lazy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.never = nn.LazyLinear(3)

        def forward(self, x: Tensor) -> Tensor:
            return x * 2

    assert totals_of(Lazy(), floats(3))["parameters"] == "0, 2 tensors not initialised"


def test_buffers() -> None:
    model = nn.BatchNorm1d(4)
    assert totals_of(model.train(), floats(3, 4))["buffers"] == "3, 3 of them used, 3 new versions"
    assert totals_of(model.eval(), floats(3, 4))["buffers"] == "3, 2 of them used"
    assert "buffers" not in totals_of(nn.ReLU(), floats(3))


def test_flops_that_are_not_known_are_counted_and_named() -> None:
    def f(x: Tensor) -> Tensor:
        for _ in range(2):
            x = torch.relu(x).unique()
        return x

    text = totals_of(f, torch.ones(4))["FLOPs"]
    assert text == "5 FLOPs, 0 MACs; not known for 2 calls: unique2 ×2"


def test_boundary_ops_are_not_timed() -> None:
    assert totals_of(models.HasScriptedChild(), floats(3, 4))["time"].endswith("boundary ops not timed")
    assert totals_of(nn.ReLU(), floats(3, 4))["time"].endswith("in torch calls")


def test_values_count_each_storage_once() -> None:
    def views(x: Tensor) -> Tensor:
        y = x * 2
        return y.view(2, 2)[0] + y[:2]

    totals = totals_of(views, torch.ones(4))
    assert totals["values"] == f"{4 * 4 + 4 * 4 + 2 * 4} B kept in 3 distinct storages"
    assert "copies" not in totals


def test_copies_before_writes_are_counted() -> None:
    def writes(x: Tensor) -> Tensor:
        y = x * 2
        y[:2] = 0
        return y

    assert totals_of(writes, torch.ones(4))["copies"] == "8 B saved before in-place writes"


SPARSE = {
    "coordinates": (lambda: torch.eye(3).to_sparse(), ("_values", "_indices")),
    "rows": (lambda: torch.eye(3).to_sparse_csr(), ("values", "crow_indices", "col_indices")),
}


@pytest.mark.parametrize("layout", SPARSE)
def test_a_sparse_tensor_lies_in_the_storages_of_its_parts(layout: str) -> None:
    make, parts = SPARSE[layout]
    tensor = make()
    nbytes = sum(getattr(tensor, part)().untyped_storage().nbytes() for part in parts)
    text = totals_of(lambda x: x, tensor)["values"]
    assert text == f"{nbytes} B kept in {len(parts)} distinct storages"


def test_nothing_is_kept_on_the_meta_device() -> None:
    model = nn.Linear(4, 2, device="meta")
    totals = totals_of(model, torch.empty(3, 4, device="meta"))
    assert totals["values"] == "0 B kept in 0 distinct storages, parameters not counted"
    assert totals["FLOPs"] == "48 FLOPs, 24 MACs"
