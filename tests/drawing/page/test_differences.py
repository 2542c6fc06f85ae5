"""What a page of two runs says of its closed modules, and of what is furthest apart."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests.drawing.page.opening import node, settle, shown
from tests.drawing.traces import Runs

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Function = Callable[[nn.Module, Tensor], Tensor]


def doubled(_: nn.Module, x: Tensor) -> Tensor:
    return torch.cos(x) * 2


def with_one_more(_: nn.Module, x: Tensor) -> Tensor:
    return torch.sin(torch.cos(x) * 2)


def times(factor: float) -> Function:
    return lambda _, x: torch.relu(torch.cos(x) * factor)


def in_dtype(dtype: torch.dtype) -> Function:
    return lambda _, x: torch.relu(torch.zeros(2, dtype=dtype))


def page_of_two(a: Function, b: Function, folder: Path) -> str:
    def outer(module: nn.Module, x: Tensor) -> Tensor:
        return module.inner(x).sum()

    traces = {
        name: tl.trace(Runs(outer, inner=Runs(function)), torch.ones(2))
        for name, function in (("a", a), ("b", b))
    }
    return tl.Bundle(traces).draw(folder / "two.html").html


@pytest.mark.parametrize(
    ("a", "b", "look", "badge"),
    [
        (doubled, doubled, "filled q0", []),
        (doubled, with_one_more, "filled among", ["+1"]),
        (with_one_more, doubled, "filled among", ["−1"]),
        (times(0.0), times(-0.0), "filled q1", []),
        (in_dtype(torch.float32), in_dtype(torch.float64), "filled q1", []),
        (times(1.0), times(1.05), "filled q4", []),
        (times(1.0), times(math.nan), "filled q5", []),
        (times(1.0), times(math.inf), "filled q5", []),
    ],
    ids=["equal", "added", "removed", "signs of zero", "dtypes", "a little apart", "NaN", "infinite"],
)
def test_a_closed_module_is_equal_only_if_all_in_it_is(
    browser: Browser, tmp_path: Path, a: Function, b: Function, look: str, badge: list[str]
) -> None:
    with shown(browser, page_of_two(a, b, tmp_path), tmp_path) as page:
        page.click("#close-all")
        node(page, "Runs").locator("> .toggle").click()
        inner = node(page, "inner")
        assert look in (inner.get_attribute("class") or "")
        assert inner.locator(".badge-text").all_text_contents() == badge


def test_what_is_not_finite_in_one_run_alone_is_furthest_apart(browser: Browser, tmp_path: Path) -> None:
    def infinite_at_first(_: nn.Module, x: Tensor) -> Tensor:
        return torch.exp(-torch.cos(x) * math.inf) + 1

    def finite(_: nn.Module, x: Tensor) -> Tensor:
        return torch.exp(-torch.cos(x) * 2) + 1

    with shown(browser, page_of_two(infinite_at_first, finite, tmp_path), tmp_path) as page:
        page.click("#panel-button")
        settle(page)
        apart = page.locator("#details section").filter(has_text="Furthest apart").locator("button.link")
        assert (apart.first.text_content() or "").startswith("mul_1")


def test_an_op_that_was_not_compared_makes_no_module_equal(browser: Browser, tmp_path: Path) -> None:
    model = Runs(lambda module, x: module.inner(x).sum(), inner=Runs(doubled))
    traces = {name: tl.trace(model, torch.ones(2), save=[tl.func("cos")]) for name in "ab"}
    html = tl.Bundle(traces).draw(tmp_path / "two.html").html
    with shown(browser, html, tmp_path) as page:
        page.click("#close-all")
        node(page, "Runs").locator("> .toggle").click()
        assert "unknown" in (node(page, "inner").get_attribute("class") or "")
