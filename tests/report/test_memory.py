"""Bytes that a trace keeps, by hand arithmetic."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests import models
from tests.programs.examples import EXAMPLES
from torchlens.report import memory as measuring
from torchlens.report.text import as_text

FLOAT = 4


def memory_of(model: Callable[..., Any], *inputs: Any) -> Any:
    return tl.trace(model, inputs).memory


@pytest.mark.parametrize(
    ("function", "kept", "storages"),
    [
        pytest.param(lambda x: x * 2, 12 * FLOAT, 1, id="one value"),
        pytest.param(lambda x: (x * 2).t()[0].view(-1).detach(), 12 * FLOAT, 1, id="views count once"),
        pytest.param(lambda x: x.t()[1:], 0, 0, id="views of the input are the caller's"),
        pytest.param(lambda x: (x[:1] * 2).expand(100, 4), 4 * FLOAT, 1, id="an expanded row is one row"),
        pytest.param(lambda x: (x * 2)[0, :1], 12 * FLOAT, 1, id="a view keeps all of its storage"),
        pytest.param(lambda x: [x * 2] * 3, 12 * FLOAT, 1, id="one tensor returned three times"),
        pytest.param(lambda x: x.new_zeros(0, 5), 0, 1, id="no elements"),
        pytest.param(lambda x: (x * 2).chunk(2), 12 * FLOAT, 1, id="parts of one storage"),
        pytest.param(lambda x: x.max(dim=1), 3 * FLOAT + 3 * 8, 2, id="two outputs of one call"),
        pytest.param(lambda x: x.double() > 0, 12 * 8 + 12, 2, id="sizes of dtypes"),
        pytest.param(lambda x: (x > 5).to_sparse(), 12 + 0, 3, id="a sparse tensor is its parts"),
        pytest.param(lambda x: x, 0, 0, id="nothing computed"),
    ],
)
def test_kept_bytes(function: Callable[..., Any], kept: int, storages: int) -> None:
    memory = memory_of(function, torch.ones(3, 4))
    assert (memory.kept_bytes, memory.num_storages) == (kept, storages)
    assert memory.given_bytes == 12 * FLOAT
    assert memory.copied_bytes == memory.parameter_bytes == memory.generator_bytes == 0


def test_an_in_place_chain_is_one_storage_and_its_copies() -> None:
    def chain(x: Tensor) -> Tensor:
        return (x * 2).add_(1).mul_(3).relu_()

    memory = memory_of(chain, torch.ones(3, 4))
    assert (memory.kept_bytes, memory.copied_bytes) == (12 * FLOAT, 3 * 12 * FLOAT)


def test_slices_written_one_by_one_cost_what_is_written() -> None:
    def fill(x: Tensor) -> Tensor:
        cache = torch.zeros(3, 4)
        for t in range(3):
            cache[t] = x[t]
        return cache

    memory = memory_of(fill, torch.ones(3, 4))
    assert (memory.kept_bytes, memory.copied_bytes) == (12 * FLOAT, 12 * FLOAT)


def test_storage_that_a_tensor_was_moved_from_is_still_kept() -> None:
    def moved(x: Tensor) -> Tensor:
        y = x * 2
        y.data = x.repeat(2, 1)
        return y

    assert memory_of(moved, torch.ones(3, 4)).kept_bytes == (12 + 24) * FLOAT


def test_tied_parameters_count_once_and_apart() -> None:
    memory = memory_of(models.TiedWeights(), torch.tensor([[1, 2]]))
    assert memory.parameter_bytes == 7 * 4 * FLOAT
    assert memory.given_bytes == 2 * 8
    assert memory.kept_bytes == 2 * 4 * FLOAT + 2 * 7 * FLOAT


def test_views_of_parameters_are_the_models() -> None:
    weight = nn.Parameter(torch.ones(4, 4))
    model = nn.Module()
    model.weight = weight
    model.forward = lambda x: x @ model.weight.t()
    assert memory_of(model, torch.ones(3, 4)).kept_bytes == 12 * FLOAT


def test_buffers_that_the_model_holds_are_given_and_replaced_ones_kept() -> None:
    written = memory_of(nn.BatchNorm1d(4).train(), torch.ones(3, 4))
    assert written.kept_bytes == 12 * FLOAT
    assert written.given_bytes == 12 * FLOAT + 2 * 4 * FLOAT + 8
    assert written.copied_bytes == 2 * 4 * FLOAT + 8
    # of three buffers the last is the model's; the sums and products of two rounds and the result are kept
    replaced = memory_of(models.ReassignsBuffer(), torch.ones(3, 4))
    assert replaced.given_bytes == 2 * 12 * FLOAT
    assert replaced.kept_bytes == (1 + 2 + 1 + 1) * 12 * FLOAT


def test_constants_found_by_name_are_given() -> None:
    table = torch.ones(5, 4)
    memory = memory_of(lambda x: x + table[0], torch.ones(3, 4))
    assert (memory.kept_bytes, memory.given_bytes) == (12 * FLOAT, (12 + 20) * FLOAT)


def test_a_model_on_meta_takes_no_memory_but_the_record() -> None:
    with torch.device("meta"):
        model, x = nn.Linear(1000, 1000), torch.ones(64, 1000)
    memory = memory_of(model, x)
    assert memory.total_bytes == memory.record_bytes > 0
    assert memory.given_bytes == memory.parameter_bytes == memory.num_storages == 0


def test_a_jagged_tensor_is_what_it_wraps() -> None:
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged)
    memory = memory_of(lambda x: x.sin(), nested)
    offsets = 3 * 8
    assert (memory.kept_bytes, memory.given_bytes) == (18 * FLOAT, 18 * FLOAT + offsets)


def test_states_of_generators_are_counted() -> None:
    memory = memory_of(nn.Dropout(0.5).train(), torch.ones(3, 4))
    assert memory.generator_bytes == torch.get_rng_state().nbytes


def test_a_block_and_a_failed_run_are_measured() -> None:
    model = nn.Linear(4, 4)
    with tl.capture(model) as block:
        model(model(torch.ones(3, 4)))
    assert block.memory.kept_bytes == 3 * 12 * FLOAT  # the ones are an op of the block
    with pytest.raises(ZeroDivisionError, match="division"), tl.capture(nn.Identity()) as failed:
        torch.ones(3, 4).sin() / (1 // 0)
    assert failed.memory.kept_bytes == 2 * 12 * FLOAT


def long_loop(x: Tensor, count: int = 2000) -> Tensor:
    for _ in range(count):
        x = x * 1.5 + 0.5
    return x


def python_memory_freed(trace: Callable[[], Any]) -> int:
    """The Python memory that dropping a trace gives back. The runs before it fill torch's and our caches."""
    for _ in range(2):
        trace()
    gc.collect()  # also gives back what Python keeps for new tuples
    tracemalloc.start()
    try:
        held = [trace()]
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        held.clear()
        gc.collect()
        return before - tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["loop", "deep", "StackedBlocks", "encoder", "CachesKeys"])
def test_record_bytes_are_what_python_gives_back(name: str) -> None:
    deep = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True)) for _ in range(40)))
    if name in EXAMPLES:
        model, inputs = EXAMPLES[name].build(), EXAMPLES[name].inputs()
    else:
        model, inputs = {"loop": (long_loop, (torch.ones(16),)), "deep": (deep, (torch.ones(2, 8),))}[name]
    freed = python_memory_freed(lambda: tl.trace(model, inputs))
    assert tl.trace(model, inputs).memory.record_bytes == pytest.approx(freed, rel=0.2)


def test_a_long_record_is_measured_by_a_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = tl.trace(long_loop, (torch.ones(16),))
    whole = trace.memory
    assert whole.measured_rows == whole.num_rows == 4002
    monkeypatch.setattr(measuring, "_MOST", 500)
    sampled = trace.memory
    assert sampled.measured_rows == 500
    assert sampled.record_bytes == pytest.approx(whole.record_bytes, rel=0.02)
    assert sampled.kept_bytes == whole.kept_bytes == 4000 * 16 * FLOAT


def test_measuring_twice_gives_the_same_and_changes_nothing() -> None:
    x = torch.ones(3, 4)
    trace = tl.trace(models.WritesEveryWay(), x)
    versions = [op._tensor._version for op in trace.ops]
    before = trace.memory
    assert [layer.layer_label for layer in trace.layers] and trace.summary() and trace.graph
    assert trace.memory == before, "what reading computes does not count"
    assert versions == [op._tensor._version for op in trace.ops]


def test_text() -> None:
    memory = measuring.Memory(5_000_000, 1000, 2000, 64, 0, 5056, 3, 50_000, 40_000)
    assert as_text(memory, 80).splitlines() == [
        "total      5.01 MB kept by the trace alone",
        "values     5.00 MB in 3 distinct storages",
        "copies     1.00 kB saved before in-place writes",
        "generators 5.06 kB of random state",
        "record     2.00 kB for 50,000 rows, 40,000 of them measured",
        "given      64 B of inputs, sources and buffers, held elsewhere too",
        "parameters 0 B, held by the model",
    ]
    assert str(memory) == as_text(memory) and memory._repr_html_().startswith("<pre")
