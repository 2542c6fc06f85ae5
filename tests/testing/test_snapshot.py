"""Snapshots: what they hold against a trace, what they find, and what they refuse to read."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests import models
from tests.programs.examples import EXAMPLES
from torchlens.errors import (
    DamagedFileError,
    MissingSnapshotError,
    OptionError,
    PathTakenError,
    TraceAssertionError,
    UnwritablePathError,
)
from torchlens.testing import Snapshot
from torchlens.testing.description import describe
from torchlens.testing.page import page_of, read_page


def run(name: str, **options: Any) -> Any:
    example = EXAMPLES[name]
    torch.manual_seed(0)
    model = example.build()
    torch.manual_seed(1)
    return tl.trace(model, example.inputs(), input_kwargs=example.kwargs(), **options)


def complaint(snapshot: Snapshot, trace: Any, **options: Any) -> str:
    """What is said of a trace, without lines of code and where differences start."""
    with pytest.raises(TraceAssertionError, match="the trace is not as") as caught:
        snapshot.check(trace, **options)
    rows = re.sub(r"^  (\S+)(?: \(\S+:\d+\))? {2,}", r"  \1  ", str(caught.value), flags=re.M)
    return re.sub(r"  <- starts .*", "", rows)


def listing(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_second_run_is_as_its_snapshot(name: str, tmp_path: Path) -> None:
    for values in (None, "stats", "exact"):
        snapshot = Snapshot(tmp_path / f"{values}.txt")
        assert snapshot.update(run(name), values=values)
        before = listing(tmp_path)
        assert not snapshot.update(run(name), values=values)
        snapshot.check(run(name), values=values)
        snapshot.check(run(name), values=None)
        assert listing(tmp_path) == before


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("options", [{}, {"save": []}], ids=["all kept", "nothing kept"])
def test_what_was_written_is_read_back(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    described = describe(run(name, **options)._reader, "stats")
    path = tmp_path / "a.txt"
    path.write_text(page_of(described), encoding="utf-8")
    assert read_page(path) == described
    assert len(described.layers) == len(run(name).layers)


def of_pairs(*numbers: float) -> str:
    """The statistics of pairs of 0 and a number, by hand."""
    mean = sum(numbers) / (2 * len(numbers))
    squares = sum(number**2 for number in numbers)
    std = math.sqrt(squares / (2 * len(numbers)) - mean**2)
    found = {"min": 0, "max": max(numbers), "mean": mean, "std": std, "norm": math.sqrt(squares)}
    return " ".join(f"{name} {number:.6g}" for name, number in found.items())


def test_the_page_for_a_loop(snapshot: Snapshot) -> None:
    snapshot.update(tl.trace(models.Looped(), torch.tensor([[0.0, 1.0]], dtype=torch.float64)))
    text = re.sub(r"made with: .*|checksum .*|digest \w+", "_", snapshot.path.read_text(encoding="utf-8"))
    first = math.tanh(1)
    second = math.tanh(first / 2)
    third = math.tanh(second / 2)
    assert text.splitlines() == [
        "torchlens snapshot, format 1",
        "model: Looped",
        "status: complete",
        "parameters: 0 in 0 tensors",
        "values: stats",
        "edges: 7, _",
        "_",
        "",
        f"input_1 | 1x2 float64 | values {of_pairs(1)}",
        f"tanh_1 x3 | 1x2 float64 | from input_1, mul_1 x2 | values {of_pairs(first, second, third)}",
        f"mul_1 x3 | 1x2 float64 | from tanh_1 x3 | values {of_pairs(first / 2, second / 2, third / 2)}",
        f"output_1 | 1x2 float64 | from mul_1 | values {of_pairs(third / 2)}",
        "",
        "_",
    ]


def linear(width: int, **changes: Any) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, width), nn.Tanh())
    for name, module in changes.items():
        setattr(model, name.removeprefix("at"), module)
    return model


def frozen(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(1)
    return make()


STRUCTURE = {
    "another width": (
        lambda: linear(2),
        ["parameters 30 in 4 tensors instead of 40 in 4 tensors", "linear_2 shape 1x2 instead of 1x4"],
    ),
    "another activation": (lambda: linear(4, at3=nn.GELU()), ["gelu_1 stands in place of tanh_1"]),
    "a layer more": (
        lambda: linear(4, at1=nn.Sequential(nn.ReLU(), nn.Sigmoid())),
        [
            "relu_1 in 1.0 instead of 1",
            "sigmoid_1 is new, after relu_1, in 1.1",
            "linear_2 reads sigmoid_1 instead of relu_1",
        ],
    ),
    "one of the same type more, before it": (
        lambda: linear(4, at0=frozen(lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU()))),
        ["relu_1 is new, after linear_1, in 0.1", "relu_2 reads relu_1 instead of linear_1"],
    ),
    "a layer less": (
        lambda: linear(4, at1=nn.Identity()),
        ["relu_1 is gone, after linear_1, in 1", "linear_2 reads linear_1 instead of relu_1"],
    ),
    "in place": (lambda: linear(4, at1=nn.ReLU(inplace=True)), ["relu_1 is written in place now"]),
    "a bias less": (
        lambda: linear(4, at2=nn.Linear(4, 4, bias=False)),
        ["linear_2 no longer uses parameter 2.bias 4"],
    ),
    "another dtype": (lambda: linear(4).double(), ["linear_1 dtype float64 instead of float32"]),
    "a module that runs nothing": (
        lambda: linear(4, unused=nn.Linear(1, 1)),
        ["parameters 42 in 6 tensors instead of 40 in 4 tensors"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STRUCTURE)
def test_a_change_of_structure_is_named(name: str, snapshot: Snapshot) -> None:
    build, expected = STRUCTURE[name]
    snapshot.update(tl.trace(linear(4), torch.ones(1, 4)))
    model = build()
    if name == "a module that runs nothing":
        model.forward = lambda x: model[3](model[2](model[1](model[0](x))))
    found = tl.trace(model, torch.ones(1, 4, dtype=next(model.parameters()).dtype))
    lines = [" ".join(line.split()) for line in complaint(snapshot, found, values=None).splitlines()]
    for line in expected:
        assert line in lines, lines


def test_one_new_layer_is_one_difference_and_one_reader(snapshot: Snapshot) -> None:
    """All later layers are renumbered, and none of them is a difference."""
    chain = [nn.Tanh() for _ in range(20)]
    snapshot.update(tl.trace(nn.Sequential(*chain), torch.ones(2)))
    longer = nn.Sequential(*chain[:10], nn.Sequential(nn.Tanh(), nn.Sigmoid()), *chain[11:])
    text = complaint(snapshot, tl.trace(longer, torch.ones(2)), values=None)
    assert [line.split()[0] for line in text.splitlines() if line.startswith("  ")] == [
        "tanh_11",  # which lies in a module more
        "sigmoid_1",
        "tanh_12",
    ]


def test_passes_that_read_other_passes_are_found(snapshot: Snapshot) -> None:
    """As many ops read as many of each layer, and other ones."""
    one, other = (tl.trace(f, torch.ones(2)) for f in (skips(1), skips(2)))
    snapshot.update(one)
    snapshot.check(tl.trace(skips(1), torch.ones(2)))
    text = complaint(snapshot, other, values=None)
    assert "edges  other passes read one another" in text
    with pytest.raises(TraceAssertionError, match="other passes read one another"):
        tl.testing.assert_same_graph(one, other)


def skips(first: int) -> Callable[[Tensor], Tensor]:
    """Three passes of `sin`, two of which read the input, or two of which read a pass."""

    def steps(x: Tensor) -> Tensor:
        states = [x]
        for step in range(3):
            states.append(torch.sin(states[-1] if step == first else x))
        return torch.stack(states)

    return steps


def test_values_may_differ_within_the_tolerance(snapshot: Snapshot) -> None:
    def scaled(factor: float) -> Any:
        return tl.trace(lambda x: torch.sin(x) * factor, torch.linspace(0, 1, 5))

    snapshot.update(scaled(1))
    snapshot.check(scaled(1 + 1e-5))
    text = complaint(snapshot, scaled(1.01))
    # the norm of the sines of 0, 1/4, 1/2, 3/4, 1 is 1.20986, and 1e-4 of it is allowed
    assert "mul_1  norm 1.22196 instead of 1.20986, tolerance 0.00012; max, mean, std too" in text
    assert text.endswith("expected? to write it anew: type this")
    snapshot.check(scaled(1.01), rtol=0.02)
    snapshot.check(scaled(1.01), atol=0.1)
    snapshot.check(scaled(1.01), values=None)
    assert complaint(snapshot, scaled(1 + 1e-5), rtol=0)
    with pytest.raises(OptionError, match="rtol=-1 is no tolerance"):
        snapshot.check(scaled(1), rtol=-1)
    with pytest.raises(OptionError, match="values='all' is none of"):
        snapshot.check(scaled(1), values="all")


def test_the_mean_of_what_is_normalized_is_held_against_the_scale(snapshot: Snapshot) -> None:
    """Relative to itself, a mean of rounding errors is never the same."""
    norm = nn.LayerNorm(64)
    x = torch.linspace(-3, 5, 64)
    snapshot.update(tl.trace(norm, x))
    snapshot.check(tl.trace(norm, x + 1e-6))


def test_integers_and_booleans_are_compared_exactly(snapshot: Snapshot) -> None:
    def of(*numbers: int) -> Any:
        return tl.trace(lambda x: x * 2 > 5, torch.tensor(numbers))

    snapshot.update(of(1, 2, 3, 100_000))
    text = complaint(snapshot, of(1, 3, 3, 100_000))
    assert "mul_1  sum 200014 instead of 200012, tolerance 0" in text
    assert "gt_1  true 3/4 instead of 2/4" in text


def test_exact_values(snapshot: Snapshot) -> None:
    def swapped(x: Tensor, first: int) -> Any:
        return tl.trace(lambda t: torch.roll(t, first), x)

    x = torch.tensor([1.0, 2.0, 3.0])
    snapshot.update(swapped(x, 1), values="exact")
    snapshot.check(swapped(x, 1), values="exact")
    snapshot.check(swapped(x, 2), values="stats")  # the same numbers in another order
    text = complaint(snapshot, swapped(x, 2), values="exact")
    assert "roll_1  3 of 3 elements differ, by up to 2" in text
    bent = x * (1 + 1e-6)
    assert "elements differ, by up to" in complaint(snapshot, swapped(bent, 1), values="exact")
    snapshot.check(swapped(bent, 1), values="exact", rtol=1e-5)
    text = complaint(snapshot, swapped(bent, 1), values="exact", rtol=0, atol=1e-6)
    assert "2 of 3 elements beyond the tolerance, up to 2.86e-06 apart" in text


@pytest.mark.parametrize(
    ("before", "now", "apart"),
    [
        (math.inf, math.inf, None),
        (math.nan, math.nan, None),
        (math.inf, -math.inf, "not all of them finite"),
        (math.inf, 1.0, "not all of them finite"),
        (1.0, math.nan, "not all of them finite"),
        (0.0, 0.2, "up to 0.2 apart"),
        (0.0, 0.1, None),
        (10.0, 11.0, None),
    ],
)
def test_elements_within_a_tolerance(
    before: float, now: float, apart: str | None, snapshot: Snapshot
) -> None:
    def of(number: float) -> Any:
        return tl.trace(lambda x: x + 0, torch.tensor([number, 0.5], dtype=torch.float64))

    snapshot.update(of(before), values="exact")
    if apart is None:
        snapshot.check(of(now), values="exact", rtol=0.1, atol=0.1)
    else:
        text = complaint(snapshot, of(now), values="exact", rtol=0.1, atol=0.1)
        assert f"add_1  1 of 2 elements beyond the tolerance, {apart}" in text


def test_the_first_pass_that_differs_comes_first(snapshot: Snapshot) -> None:
    torch.manual_seed(0)
    model = models.ReusedBlock()
    snapshot.update(tl.trace(model, torch.ones(1, 4)), values="exact")
    with torch.no_grad():
        model.block.second.bias += 1
    text = complaint(snapshot, tl.trace(model, torch.ones(1, 4)), values="exact")
    lines = [line.split()[0] for line in text.splitlines() if line.startswith("  ")]
    assert lines[:3] == ["linear_2", "add_2", "linear_1"]
    assert "linear_2  pass 1: 4 of 4 elements differ, by up to 1; 2 later passes too" in text
    assert "linear_1  pass 2: 4 of 4" in text


def test_a_snapshot_has_more_or_less_of_the_values(snapshot: Snapshot) -> None:
    trace = tl.trace(torch.sin, torch.ones(2))
    snapshot.update(trace, values=None)
    assert "values " not in snapshot.path.read_text(encoding="utf-8").replace("values: none", "")
    for values, less in (("stats", "none"), ("exact", "stats")):
        text = complaint(snapshot, trace, values=values)
        assert f"values  {values} is asked for, and the snapshot was written with {less}" in text
        assert snapshot.update(trace, values=values)
        assert not snapshot.update(trace, values=values)
    assert not snapshot.update(trace, values="stats"), "an exact one has statistics, too"
    assert snapshot.values_path.is_dir()
    assert snapshot.update(tl.trace(torch.cos, torch.ones(2)), values="stats")
    assert not snapshot.values_path.exists(), "values of another trace lie about"


def test_values_that_are_not_kept_are_not_passed_over(snapshot: Snapshot) -> None:
    for values in ("stats", "exact"):
        snapshot.update(run("ReusedBlock"), values=values)
        text = complaint(snapshot, run("ReusedBlock", save="linear_1:2"), values=values)
        assert re.search(
            r"linear_1 .*(kept 1/3 instead of none|its value is not kept; 1 later pass too)", text
        )
        snapshot.path.unlink()
    assert snapshot.update(run("ReusedBlock", save="linear_1:2"), values="exact")
    snapshot.check(run("ReusedBlock", save="linear_1:2"), values="exact")
    assert "its value is kept, and the snapshot has none" in complaint(
        snapshot, run("ReusedBlock"), values="exact"
    )


def of_dtypes(x: Tensor) -> tuple[Tensor, ...]:
    return (
        x.bfloat16() * 2, x.half(), x.double(), torch.complex(x, -x).conj(), x.to(torch.float8_e4m3fn),
        x[:0] + 1, torch.log(x - 1), x.to_sparse(), torch.quantize_per_tensor(x, 0.5, 0, torch.quint8),
        torch.nested.as_nested_tensor([x, x[:1]]), x > 0, x.long(), x.sum(), torch.ones(2, device="meta") + 1,
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*nested.*:UserWarning", "ignore:.*quantiz.*")
def test_every_kind_of_tensor(snapshot: Snapshot) -> None:
    x = torch.tensor([0.0, 1.0, 2.5])
    for values in ("stats", "exact"):
        assert snapshot.update(tl.trace(of_dtypes, x), values=values)
        snapshot.check(tl.trace(of_dtypes, x), values=values)
        text = complaint(snapshot, tl.trace(of_dtypes, x + 1), values=values)
        for label in (
            "mul_1",
            "half_1",
            "double_1",
            "conj_1",
            "to_1",
            "log_1",
            "to_sparse_1",
            "gt_1",
            "long_1",
        ):
            assert re.search(rf"^  {label} ", text, re.M) or "more differences" in text, (label, text)
        snapshot.path.unlink()


def fills(x: Tensor) -> tuple[Tensor, ...]:
    room = torch.empty(3, 2)
    room[0] = x
    part = room[1:]
    part.copy_(x.expand(2, 2))
    whole = room + 1
    torch.add(x, 1, out=torch.empty(2))
    return whole, torch.empty_like(x).fill_(2), x.new_empty(2).sin_().zero_()


def test_memory_that_nothing_has_filled_is_not_compared(snapshot: Snapshot) -> None:
    """`empty` gives what lay there before, another thing in each run."""
    for values in ("stats", "exact"):
        snapshot.update(tl.trace(fills, torch.ones(2)), values=values)
        with nan_in_new_memory():
            trace = tl.trace(fills, torch.ones(2))
        assert trace["empty_1"].out.isnan().all()
        snapshot.check(trace, values=values)
        assert "7 left out" in str(tl.testing.assert_finite(trace))
    lines = {line.label: line.values for line in read_page(snapshot.path).layers}
    assert {label for label, found in lines.items() if "unfilled" in found} == {
        *("empty_1", "empty_2", "empty_like_1", "new_empty_1"),
        *("setitem_1", "getitem_1", "sin_1"),
    }
    assert all("norm" in lines[label] for label in ("copy_1", "add_1", "add_2", "fill_1", "zero_1"))


@contextmanager
def nan_in_new_memory() -> Iterator[None]:
    """Torch fills what `empty` gives with NaN when it is to be deterministic."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("part", ["a | b", "x, y", "new\nline", "é ü", "\\u0020;", "\ud800", "tab\t", "from"])
def test_names_are_read_back_as_they_were(part: str, snapshot: Snapshot) -> None:
    model = nn.Module()
    model.add_module(part, nn.Linear(2, 2))
    model.forward = lambda x: model._modules[part](x)
    trace = tl.trace(model, torch.ones(2))
    snapshot.update(trace)
    snapshot.check(trace)
    layer = read_page(snapshot.path).layers[1]
    assert (layer.module, list(layer.params)) == (part, [f"{part}.weight", f"{part}.bias"])
    assert len(snapshot.path.read_text(encoding="utf-8").splitlines()) == 13


def test_failed_and_halted_runs(snapshot: Snapshot) -> None:
    model = models.Raises(ValueError("x"))
    with pytest.raises(ValueError, match="x"), tl.capture(model) as failed:
        model(torch.ones(1, 4))
    snapshot.update(failed)
    snapshot.check(failed)
    halted = tl.trace(linear(4), torch.ones(1, 4), stop_after="relu_1")
    assert "status  halted instead of failed" in complaint(snapshot, halted)


def test_there_is_no_snapshot(snapshot: Snapshot, tmp_path: Path) -> None:
    with pytest.raises(MissingSnapshotError, match=r"there is no snapshot .*a\.txt; to write it: type this"):
        snapshot.check(run("ReusedBlock"))
    assert list(tmp_path.iterdir()) == []


def test_the_values_are_gone(snapshot: Snapshot) -> None:
    snapshot.update(run("ReusedBlock"), values="exact")
    for path in snapshot.values_path.iterdir():
        path.unlink()
    with pytest.raises(MissingSnapshotError, match=r"and manifest\.json is not there; commit the whole"):
        snapshot.check(run("ReusedBlock"), values="exact")
    snapshot.values_path.rmdir()
    with pytest.raises(MissingSnapshotError, match=r"and there is no such directory; .*anew: type this$"):
        snapshot.check(run("ReusedBlock"), values="exact")
    snapshot.check(run("ReusedBlock"), values="stats")
    assert snapshot.update(run("ReusedBlock"), values="exact")
    snapshot.check(run("ReusedBlock"), values="exact")


@pytest.mark.parametrize("name", ["values-00000.safetensors", "index.jsonl"])
def test_a_file_of_the_values_is_gone(name: str, snapshot: Snapshot) -> None:
    """As where a .gitignore has it."""
    snapshot.update(run("ReusedBlock"), values="exact")
    (snapshot.values_path / name).unlink()
    with pytest.raises(
        MissingSnapshotError, match=f"and {name} is not there; commit .*: type this$"
    ) as caught:
        snapshot.check(run("ReusedBlock"), values="exact")
    assert caught.value.__suppress_context__
    assert snapshot.update(run("ReusedBlock"), values="exact")
    snapshot.check(run("ReusedBlock"), values="exact")


def test_a_file_of_the_values_is_cut_off(snapshot: Snapshot) -> None:
    snapshot.update(run("ReusedBlock"), values="exact")
    shard = snapshot.values_path / "values-00000.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(DamagedFileError, match="were written; copy it again; to write it anew: type this"):
        snapshot.check(run("ReusedBlock"), values="exact")


def test_a_directory_of_others_is_left_alone(snapshot: Snapshot) -> None:
    snapshot.values_path.mkdir()
    (snapshot.values_path / "mine").touch()
    for values in ("stats", "exact"):
        with pytest.raises(
            PathTakenError, match="holds something else than values, and is not removed; delete it"
        ):
            snapshot.update(run("ReusedBlock"), values=values)
    assert [path.name for path in snapshot.path.parent.iterdir()] == ["a.values"]
    assert [path.name for path in snapshot.values_path.iterdir()] == ["mine"]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    snapshot = Snapshot(tmp_path / "file" / "a.txt")
    for values in ("stats", "exact"):
        with pytest.raises(UnwritablePathError, match="cannot be written"):
            snapshot.update(run("ReusedBlock"), values=values)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_nothing_of_this_machine_is_in_it(snapshot: Snapshot) -> None:
    snapshot.update(run("ReusedBlock"), values="exact")
    for path, octets in listing(snapshot.path.parent).items():
        text = octets.decode("latin-1")
        assert str(Path(__file__).parent) not in text, path
        assert not re.search(r"0x[0-9a-f]{6}|\.py", text), path
