"""What goes forward to a later pass has an edge of its own, drawn as what goes back is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests.drawing.page.opening import node, settle, shown
from tests.drawing.page.shapes import html_of
from tests.drawing.page.test_layout import MEASURE, complaints, crossings
from tests.drawing.traces import Runs

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def through_a_copy(module: nn.Module, x: Tensor) -> Tensor:
    """`a` goes into the add of its pass and, kept for the next, into the cos and so on."""
    k = x
    for _ in range(4):
        a = torch.relu(x)
        c = torch.cos(k)
        x = a + c
        k = a
    return x


def through_modules(module: nn.Module, x: Tensor) -> Tensor:
    k = x
    for _ in range(4):
        a = module.first(x)
        c = module.second(k)
        x = a + c
        k = a
    return x


def two_ops(_: nn.Module, x: Tensor) -> Tensor:
    return torch.tanh(torch.exp(x))


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (Runs(through_a_copy), ["relu_1", "cos_1"]),
        (Runs(through_modules, first=Runs(two_ops), second=Runs(two_ops)), ["first", "second"]),
    ],
    ids=["ops", "modules"],
)
def test_what_goes_on_to_a_later_pass_is_dashed_and_counted(
    browser: Browser, tmp_path: Path, model: nn.Module, names: list[str]
) -> None:
    html = html_of(tl.trace(model, torch.ones(2)))
    with shown(browser, html, tmp_path, fragment="#view=rolled") as page:
        page.click("#close-all")
        node(page, "Runs").locator("> .toggle").click()
        page.keyboard.press("0")
        start, end = (node(page, name).get_attribute("data-part") for name in names)
        edge = page.locator(f'#world .edge.back[data-from="{start}"][data-to="{end}"]')
        assert edge.locator(".count text").all_text_contents() == ["×3"]
        wire = edge.locator(".wire")
        assert wire.evaluate("(wire) => getComputedStyle(wire).strokeDasharray") != "none"
        page.click("#open-all")
        page.keyboard.press("0")
        settle(page)
        found = page.evaluate(MEASURE)
        assert complaints(found) == []
        assert crossings(found) == []


class ReadsTwice(nn.Module):
    """What relu gives goes into the add of this pass and into that of the next."""

    def forward(self, x: Tensor) -> Tensor:
        kept = x
        for _ in range(4):
            now = torch.relu(x)
            x = torch.cat([now, kept]).reshape(2, -1).sum(0)
            kept = now
        return x


def test_what_stays_in_a_pass_and_what_goes_on_are_two_edges_apart(browser: Browser, tmp_path: Path) -> None:
    html = html_of(tl.trace(ReadsTwice(), torch.ones(2)))
    with shown(browser, html, tmp_path, fragment="#view=rolled") as page:
        page.click("#open-all")
        page.keyboard.press("0")
        start, end = (node(page, name).get_attribute("data-part") for name in ("relu_1", "cat_1"))
        edges = page.locator(f'#world .edge[data-from="{start}"][data-to="{end}"]')
        assert sorted("back" in (edge.get_attribute("class") or "") for edge in edges.all()) == [False, True]
        middles = edges.locator(".wire").evaluate_all(
            "(wires) => wires.map((wire) => wire.getPointAtLength(wire.getTotalLength() / 2).x)"
        )
        assert abs(middles[0] - middles[1]) > 8
