"""Real architectures, traced: the same numbers, verified, validated. `--zoo` takes all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple

import pytest
import torch
from torch import Tensor, nn

from tests.zoo import page
from tests.zoo.catalogue import FILES, SPREAD, entries, missing_packages, spread
from tests.zoo.entry import FAMILIES, Entry, Inputs
from tests.zoo.examination import examine


def test_model(entry: Entry, record_property: Callable[[str, object], None]) -> None:
    record_property("zoo", astuple(page.line_of(entry, examine(entry))))


class Drifting(nn.Module):
    """Gives something else whenever one of its kind is run."""

    runs = 0

    def forward(self, x: Tensor) -> Tensor:
        Drifting.runs += 1
        return x + Drifting.runs


class Hiding(nn.Module):
    """Makes a tensor where torch shows it to no one."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.FloatTensor([1.0])


def entry_of(kind: type[nn.Module]) -> Entry:
    return Entry(kind.__name__, "tests", "mixer", kind, lambda: Inputs((torch.randn(2),)))


def test_another_output_is_noticed() -> None:
    with pytest.raises(AssertionError, match="output differs"):
        examine(entry_of(Drifting))


def test_an_unseen_tensor_is_noticed() -> None:
    with pytest.raises(AssertionError, match="unknown_origin"):
        examine(entry_of(Hiding))


@pytest.mark.parametrize("package", FILES)
def test_the_package_is_installed(package: str) -> None:
    if package in missing_packages():
        pytest.skip(f"{package} is not installed, so its models are not run")


@pytest.fixture
def catalogue() -> list[Entry]:
    if missing := missing_packages():
        pytest.skip(f"without {', '.join(missing)} the catalogue is not whole")
    return entries()


def test_every_family_is_there(catalogue: list[Entry]) -> None:
    assert len(catalogue) >= 150
    assert {entry.family for entry in catalogue} == set(FAMILIES)


def test_names_are_told_apart(catalogue: list[Entry]) -> None:
    assert len({(entry.package, entry.name) for entry in catalogue}) == len(catalogue)


def test_the_spread_covers_every_family_and_package(catalogue: list[Entry]) -> None:
    chosen = spread(catalogue)
    assert len(chosen) == len(SPREAD) == 20
    assert {entry.family for entry in chosen} == set(FAMILIES)
    assert {entry.package for entry in chosen} == set(FILES)


def test_the_page_lists_the_catalogue(catalogue: list[Entry]) -> None:
    lines = page.lines_in(page.PATH.read_text(encoding="utf-8"))
    listed = [(line.model, line.package, line.family, line.notes) for line in lines]
    bold = {(entry.package, entry.name) for entry in spread(catalogue)}
    assert listed == [
        (f"**{entry.name}**" if (entry.package, entry.name) in bold else entry.name,
         entry.package, entry.family, entry.notes)
        for entry in catalogue
    ]  # fmt: skip


def test_unverified_models_say_why(catalogue: list[Entry]) -> None:
    assert [entry.name for entry in catalogue if entry.unseen and not entry.notes] == []
