"""Regions of storages against sets of byte addresses."""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from torch import Tensor

from torchlens._values.geometry import region_of, storage_key
from torchlens._values.region import Region, last_writers

BASE = torch.zeros(6, 8)


def addresses(region: Region) -> set[int]:
    """Every byte a region covers, one at a time."""
    steps = itertools.product(
        *(range(0, n * s, s) if s else [0] * n for n, s in zip(region.size, region.stride))
    )
    starts = [(region.offset + sum(step)) * region.itemsize for step in steps]
    return {start + at for start in starts for at in range(region.itemsize)}


VIEWS: dict[str, Tensor] = {
    "whole": BASE,
    "row": BASE[2],
    "column": BASE[:, 3],
    "block": BASE[1:4, 2:5],
    "every other": BASE[::2, 1::3],
    "transposed": BASE.t(),
    "expanded": BASE[:, :1].expand(6, 8),
    "one": BASE[5, 7],
    "nothing": BASE[:0],
    "nothing inside": BASE[2:2, 4:],
    "bytes": BASE.view(torch.uint8)[:, 3:9],
    "doubles": BASE.view(torch.float64)[1],
    "windows": BASE.unfold(1, 4, 2),
    "diagonal": BASE.diagonal(),
}


@pytest.mark.parametrize("name", VIEWS)
def test_the_span_runs_from_the_first_byte_to_the_last(name: str) -> None:
    region = region_of(VIEWS[name])
    first, past = region.span
    covered = addresses(region)
    assert (first, past) == ((min(covered), max(covered) + 1) if covered else (first, first))


@pytest.mark.parametrize("name", [name for name, view in VIEWS.items() if view.numel()])
def test_a_region_is_dense_only_if_every_byte_of_its_span_is_in_it(name: str) -> None:
    region = region_of(VIEWS[name])
    first, past = region.span
    if region.is_dense:
        assert addresses(region) == set(range(first, past))


@pytest.mark.parametrize("name", ["whole", "row", "transposed", "one"])
def test_regions_without_gaps_are_dense(name: str) -> None:
    assert region_of(VIEWS[name]).is_dense


def reference(reader: Region, writers: list[Region]) -> tuple[list[int], bool]:
    remaining = addresses(reader)
    found = []
    whole = bool(remaining)
    for at, writer in enumerate(writers):
        if remaining & addresses(writer):
            found.append(at)
            remaining -= addresses(writer)
    return found, whole and not remaining


def some_view(draw: random.Random) -> Tensor:
    view = draw.choice([BASE, BASE.view(torch.uint8), BASE.view(torch.int16), BASE.view(torch.float64)])
    for _ in range(draw.randrange(4)):
        if view.dim() == 0:
            break
        dim = draw.randrange(view.dim())
        start, step = draw.randrange(view.shape[dim] + 1), draw.randint(1, 3)
        view = view.narrow(dim, start, view.shape[dim] - start)
        view = view[(slice(None),) * dim + (slice(None, None, step),)]
        view = view.transpose(0, -1) if draw.random() < 0.3 else view
    return view


@pytest.mark.parametrize("seed", range(200))
def test_last_writers_are_those_of_a_byte_by_byte_search(seed: int) -> None:
    draw = random.Random(seed)
    reader = region_of(some_view(draw))
    writers = [region_of(some_view(draw)) for _ in range(draw.randrange(6))]
    assert last_writers(reader, writers) == reference(reader, writers)


@pytest.mark.parametrize(
    ("reader", "writers", "expected"),
    [
        ("row", ["row"], ([0], True)),
        ("row", ["column", "whole", "row"], ([0, 1], True)),
        ("row", ["nothing"], ([], False)),
        ("nothing", ["whole"], ([], False)),
        ("whole", ["transposed"], ([0], True)),
        ("whole", ["row", "column"], ([0, 1], False)),
        ("expanded", ["column"], ([], False)),
        ("bytes", ["whole"], ([0], True)),
        ("doubles", ["row"], ([], False)),
    ],
)
def test_last_writers_newest_first(reader: str, writers: list[str], expected: tuple[list[int], bool]) -> None:
    assert last_writers(region_of(VIEWS[reader]), [region_of(VIEWS[name]) for name in writers]) == expected


def test_views_share_a_storage_key_and_others_do_not() -> None:
    assert len({storage_key(view) for view in VIEWS.values()}) == 1
    assert storage_key(BASE.clone()) != storage_key(BASE)
    assert storage_key(BASE.detach()) == storage_key(BASE)


def test_tensors_without_a_storage_are_one_element_of_their_own() -> None:
    sparse, other = torch.eye(3).to_sparse(), torch.eye(3).to_sparse()
    assert storage_key(sparse) != storage_key(other)
    assert region_of(sparse) == region_of(other)
    assert last_writers(region_of(sparse), [region_of(sparse)]) == ([0], True)
