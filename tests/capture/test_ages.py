"""Which tensors are older than a capture, also when the collector runs meanwhile."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch

from torchlens._capture import ages as module
from torchlens._capture.ages import Ages


@pytest.fixture(params=[True, False], ids=["collector on", "collector off"])
def collector(request: pytest.FixtureRequest) -> Iterator[None]:
    before = gc.isenabled()
    gc.enable() if request.param else gc.disable()
    yield
    gc.enable() if before else gc.disable()


@pytest.mark.usefixtures("collector")
def test_old_and_young() -> None:
    old = torch.ones(3)
    ages = Ages(set())
    ages.open()
    young = torch.ones(3)
    assert (ages.is_young(old), ages.is_young(young)) == (False, True)
    assert ages.young_among(frozenset([id(old), id(young)])) == {id(young)}
    ages.close()


@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize("generation", [0, 1, 2])
def test_a_collection_makes_nothing_older(generation: int) -> None:
    old = torch.ones(3)
    ages = Ages(set())
    ages.open()
    first = torch.ones(3)
    gc.collect(generation)
    second = torch.ones(3)
    gc.collect(generation)
    third = torch.ones(3)
    assert [ages.is_young(tensor) for tensor in (old, first, second, third)] == [False, True, True, True]
    assert ages.young_among(frozenset(map(id, (old, first)))) == {id(first)}
    ages.close()


def test_what_was_freed_lends_its_address_to_none() -> None:
    kept = [torch.ones(3) for _ in range(100)]
    ages = Ages(set())
    ages.open()
    for _ in range(50):
        gone = torch.ones(3)
        gc.collect(0)
        del gone
    assert not any(ages.is_young(tensor) for tensor in kept)
    ages.close()


def test_tensors_without_a_storage_can_be_noted() -> None:
    ages = Ages(set())
    ages.open()
    sparse = torch.eye(3).to_sparse()
    gc.collect()
    assert ages.is_young(sparse) in (True, False)
    ages.close()


def test_known_tensors_are_not_noted_and_nothing_is_kept_alive() -> None:
    known: set[int] = set()
    ages = Ages(known)
    ages.open()
    tensor = torch.ones(3)
    known.add(id(tensor))
    other = torch.ones(1000)
    reference = torch.multiprocessing.reductions.StorageWeakRef(other.untyped_storage())
    gc.collect()
    assert len(ages._born) == 1
    del other
    assert reference.expired()
    ages.close()


def test_questions_end_where_they_cost_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_SCANNED", 0)
    ages = Ages(set())
    ages.open()
    assert ages.is_young(torch.ones(3)) is True
    assert ages.is_young(torch.ones(3)) is None
    ages.close()


def test_the_collector_is_left_as_it_was() -> None:
    before = list(gc.callbacks)
    ages = Ages(set())
    ages.open()
    assert len(gc.callbacks) == len(before) + 1
    ages.close()
    assert gc.callbacks == before
