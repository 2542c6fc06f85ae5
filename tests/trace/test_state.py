"""Parameters and buffers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests import models
from tests.programs.reading import floats
from torchlens.errors import OverwrittenError


def test_a_parameter() -> None:
    model = models.BareParameter()
    trace = tl.trace(model, floats(3, 4))
    scale, frozen = trace.params
    assert (scale.address, scale.addresses) == ("scale", ("scale",))
    assert (scale.shape, scale.dtype, scale.numel, scale.nbytes) == ((4,), torch.float32, 4, 16)
    assert scale.trainable is True
    assert scale.value is model.scale and frozen.trainable is False
    assert [op.label for op in scale.ops] == ["mul_1:1"]
    assert (str(scale), repr(scale)) == ("scale", "<Param scale (4,)>")


def test_tied_parameters_are_one() -> None:
    trace = tl.trace(models.TiedWeights(), torch.tensor([[1, 2, 3]]))
    assert len(trace.params) == 1
    weight = trace.params["head.weight"]
    assert weight.addresses == ("embed.weight", "head.weight") and weight == trace.params["embed.weight"]
    assert [op.type for op in weight.ops] == ["embedding", "linear"]
    assert [p.address for p in trace["head"].params] == ["embed.weight"]


def test_a_parameter_that_nothing_used_has_no_ops() -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    model.register_parameter("extra", nn.Parameter(torch.ones(1)))
    trace = tl.trace(model, floats(3, 4))
    assert list(trace.params["extra"].ops) == []


def values(buffer: object) -> list[Tensor]:
    return [op.out.clone() for op in buffer.versions]


def test_running_statistics_have_a_version_for_each_training_forward() -> None:
    model = nn.BatchNorm1d(4)
    plain = nn.BatchNorm1d(4)
    expected = [plain.running_mean.clone()]
    x = floats(3, 4)
    with tl.capture(model) as trace:
        for factor in (1, 2, 3):
            model(x * factor)
    for factor in (1, 2, 3):
        plain(x * factor)
        expected.append(plain.running_mean.clone())
    buffer = trace.buffers["running_mean"]
    assert all(map(torch.equal, values(buffer), expected)) and len(buffer.versions) == 4
    assert torch.equal(buffer.initial_value, expected[0]) and torch.equal(buffer.final_value, expected[-1])
    assert [op.parents[0].type for op in buffer.versions[1:]] == ["batch_norm"] * 3
    assert trace.buffers["num_batches_tracked"].final_value == 3
    assert buffer.persistent and (str(buffer), repr(buffer)) == (
        "running_mean",
        "<Buffer running_mean 4 versions>",
    )


def test_statistics_that_are_only_read_have_one_version() -> None:
    trace = tl.trace(nn.BatchNorm1d(4).eval(), floats(3, 4))
    assert [len(buffer.versions) for buffer in trace.buffers] == [1, 1, 0]
    version = trace.buffers["running_mean"].versions[0]
    assert version.kind == "buffer" and list(version.parents) == [] and version.name == "running_mean"
    assert trace.buffers["running_mean"].final_value is trace.buffers["running_mean"].initial_value


def test_in_place_updates_are_versions_of_the_buffer() -> None:
    trace = tl.trace(models.CountsOnTwoLines(), floats(3, 4))
    buffer = trace.buffers["count"]
    assert [float(value[0]) for value in values(buffer)] == [0, 1, 3]
    assert [[p.label for p in op.parents] for op in buffer.versions] == [[], ["add_1:1"], ["add_2:1"]]
    readers = [op.parents[-1] for op in trace.ops if op.func_name in ("__sub__", "__add__")]
    assert readers == [buffer.versions[1], buffer.versions[2]]
    assert (buffer.initial_value.sum(), buffer.final_value.sum()) == (0, 12)


def test_reassignment_is_a_version_of_the_buffer() -> None:
    model, x = models.ReassignsBuffer(), floats(3, 4)
    trace = tl.trace(model, x)
    buffer = trace.buffers["h"]
    first = torch.tanh(torch.zeros(3, 4) + x)
    assert all(map(torch.equal, values(buffer), [torch.zeros(3, 4), first, torch.tanh(first + x)]))
    assert [op.parents[0].type for op in buffer.versions[1:]] == ["tanh", "tanh"]
    assert buffer.final_value is model.h and not buffer.initial_value.any()


def test_assignment_from_outside_the_model_is_a_version() -> None:
    model, x = nn.BatchNorm1d(4), floats(3, 4)
    with tl.capture(model) as trace:
        model(x)
        model.running_mean = torch.ones(4)
        model(x)
        model.running_mean.zero_()
        model(x)
    buffer = trace.buffers["running_mean"]
    after = 0.1 * x.mean(0)
    expected = [torch.zeros(4), after, torch.ones(4), 0.9 + after, torch.zeros(4), after]
    assert all(map(torch.allclose, values(buffer), expected)) and len(buffer.versions) == 6
    assert buffer.final_value is model.running_mean
    assert trace["batch_norm_1:2"].buffers["running_mean"] == buffer


def write_slice(model: nn.Module) -> None:
    model.state[1:].add_(2)


def write_item(model: nn.Module) -> None:
    model.state[0] = 5


def write_data(model: nn.Module) -> None:
    model.state.data = torch.full((4,), 7.0)


def write_out(model: nn.Module) -> None:
    torch.add(model.state, 1, out=model.state)


def write_view(model: nn.Module) -> None:
    model.state.view(2, 2)[1].copy_(torch.ones(2))


def assign(model: nn.Module) -> None:
    model.state = model.state + 1


def assign_constant(model: nn.Module) -> None:
    model.state = torch.ones(4)


@pytest.mark.parametrize(
    "write",
    [write_slice, write_item, write_data, write_out, write_view, assign, assign_constant],
    ids=lambda f: f.__name__,
)
def test_each_way_to_change_a_buffer_makes_one_version(write: Callable[[nn.Module], None]) -> None:
    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("state", torch.arange(4.0), persistent=False)

        def forward(self, x: Tensor) -> Tensor:
            y = x + self.state
            write(self)
            return y * self.state

    model, plain = Writes(), Writes()
    trace = tl.trace(model, torch.ones(4))
    write(plain)
    buffer = trace.buffers["state"]
    assert [value.tolist() for value in values(buffer)] == [[0, 1, 2, 3], plain.state.tolist()]
    assert buffer.initial_value.tolist() == [0, 1, 2, 3] and torch.equal(buffer.final_value, plain.state)
    assert (
        buffer.versions[1] in trace["mul_1:1"].parents and buffer.versions[0] not in trace["mul_1:1"].parents
    )
    assert buffer.versions[0] in trace["add_1:1"].parents
    assert buffer.persistent is False


def test_a_buffer_shared_under_two_names_is_one() -> None:
    model = nn.Module()
    model.register_buffer("one", torch.ones(2))
    model.register_buffer("two", model.one)
    model.forward = lambda x: x + model.one * model.two
    trace = tl.trace(model, torch.ones(2))
    assert [buffer.addresses for buffer in trace.buffers] == [("one", "two")]
    assert trace.buffers["two"] == trace.buffers["one"]


def test_a_buffer_of_none_has_no_value() -> None:
    model = nn.BatchNorm1d(4, track_running_stats=False)
    trace = tl.trace(model, floats(3, 4))
    assert [(b.initial_value, b.final_value) for b in trace.buffers] == [(None, None)] * 3


@pytest.mark.parametrize("name", ["initial_value", "final_value"])
@pytest.mark.parametrize("used", [True, False], ids=["used", "unused"])
def test_a_buffer_changed_after_the_capture_raises(name: str, used: bool) -> None:
    model = nn.BatchNorm1d(4).eval() if used else nn.Linear(4, 4)
    if not used:
        model.register_buffer("running_mean", torch.zeros(4))
    trace = tl.trace(model, floats(3, 4))
    model.running_mean.add_(1)
    with pytest.raises(OverwrittenError, match="running_mean was changed in place"):
        getattr(trace.buffers["running_mean"], name)
