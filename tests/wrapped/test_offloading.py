"""accelerate's offloading: weights that are brought in before each module runs, and taken away after it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests.programs.reading import op_labels
from tests.wrapped.agreement import agreeing
from tests.wrapped.packages import package

accelerate = package("accelerate")

CPU = torch.device("cpu")
IDS = torch.tensor([[1, 2, 3], [4, 5, 6]])
pytestmark = pytest.mark.filterwarnings("ignore:The following device_map keys")
PARTS = ["embed", "body.0", "body.1", "body.2", "body.3", "scale", "shift"]


class Net(nn.Module):
    """Modules with parameters and buffers, and a parameter and a buffer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))
        self.scale = nn.Parameter(torch.full((4,), 2.0))
        self.register_buffer("shift", torch.ones(4))

    def forward(self, ids: Tensor) -> Tensor:
        return self.body(self.embed(ids).mean(1)) * self.scale + self.shift


def plain() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Net().eval()


def on_cpu(folder: Path) -> nn.Module:
    model = plain()
    accelerate.cpu_offload(model, execution_device=CPU)
    return model


def on_disk(folder: Path) -> nn.Module:
    model = plain()
    accelerate.disk_offload(model, folder, execution_device=CPU)
    return model


def dispatched(folder: Path) -> nn.Module:
    homes = dict(zip(PARTS, ("cpu", "disk", "cpu", "cpu", "disk", "cpu", "cpu")))
    return accelerate.dispatch_model(plain(), homes, offload_dir=folder, main_device="cpu", force_hooks=True)


WAYS = [
    pytest.param(on_cpu, id="cpu_offload"),
    pytest.param(on_disk, id="disk_offload"),
    pytest.param(dispatched, id="dispatch_model"),
]
Offload = Callable[[Path], nn.Module]


@pytest.mark.parametrize("offload", WAYS)
def test_offloaded_weights(offload: Offload, tmp_path: Path) -> None:
    first, second = agreeing(lambda: offload(tmp_path), IDS)
    assert op_labels(first) == op_labels(second)
    assert torch.equal(first.output, plain()(IDS))
    assert [module.address for module in first.modules] == [name for name, _ in plain().named_modules()]
    assert {param.address for param in first.params} == {name for name, _ in plain().named_parameters()}
    assert len(first.params) == len(list(plain().parameters()))
    readers = [op for op in first.ops if op.type in ("linear", "embedding", "batch_norm", "mul")]
    used = {param.address for op in readers for param in op.params}
    assert used == {name for name, _ in plain().named_parameters()}
    assert {buffer.address for buffer in first.buffers} == {name for name, _ in plain().named_buffers()}


@pytest.mark.parametrize("offload", WAYS)
def test_the_weight_that_a_call_read_is_what_was_brought_in(offload: Offload, tmp_path: Path) -> None:
    trace = tl.trace(offload(tmp_path), IDS)
    for label, address in (("linear_1:1", "body.0"), ("linear_2:1", "body.3")):
        weight = trace[label].args[1]
        assert torch.equal(weight.out, plain().get_parameter(f"{address}.weight"))
        assert weight.op.module.address == address  # the hook that brings it in runs in the module's call


@pytest.mark.parametrize("offload", WAYS[:2])
def test_the_weights_are_away_again_afterwards(offload: Offload, tmp_path: Path) -> None:
    model = offload(tmp_path)
    (row,) = [row for row in tl.report.doctor(model, IDS).rows if row.check == "offloading"]
    assert row.status == "limited" and "accelerate brings weights in" in row.found
    tl.trace(model, IDS)
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
    assert torch.equal(model(IDS), plain()(IDS))
