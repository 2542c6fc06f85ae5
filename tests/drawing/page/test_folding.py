"""Modules open and close, by mouse and by keys, one at a time and all at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

import torchlens as tl
from tests.drawing.page.opening import fragment, node, selected, settle, shown, titles
from tests.drawing.page.shapes import html_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture
def unet(browser: Browser, page_html: Callable[[str], str], tmp_path: Path) -> Iterator[Page]:
    with shown(browser, page_html("unet"), tmp_path, fragment="#module=inner.inner:1") as page:
        settle(page)
        yield page


def is_open(page: Page, title: str) -> bool:
    settle(page)
    return (
        page.locator("#world .node.selected").get_attribute("aria-expanded") == "true"
        if not title
        else (node(page, title).get_attribute("aria-expanded") == "true")
    )


def test_the_sign_opens_and_closes(unet: Page) -> None:
    before = is_open(unet, "")
    unet.locator("#world .node.selected > .toggle").click()
    assert is_open(unet, "") is not before
    unet.locator("#world .node.selected > .toggle").click()
    assert is_open(unet, "") is before


def test_a_double_click_opens_and_closes(unet: Page) -> None:
    before = is_open(unet, "")
    unet.locator("#world .node.selected > .title").dblclick()
    assert is_open(unet, "") is not before


@pytest.mark.parametrize("key", ["Enter", " "])
def test_enter_opens_and_closes_and_the_node_keeps_the_focus(unet: Page, key: str) -> None:
    unet.locator("#world .node.selected").focus()
    before = is_open(unet, "")
    unet.keyboard.press(key)
    assert is_open(unet, "") is not before
    settle(unet)
    assert unet.evaluate("() => document.activeElement.classList.contains('selected')")


def test_the_node_that_is_opened_stays_where_it_was(unet: Page) -> None:
    unet.keyboard.press("x")
    first = node(unet, "Level")
    before = first.bounding_box()
    first.locator("> .toggle").click()
    settle(unet)
    after = node(unet, "Level").bounding_box()
    assert before is not None
    assert after is not None
    assert after["height"] > before["height"]
    assert after["y"] == pytest.approx(before["y"], abs=1)
    assert after["x"] + after["width"] / 2 == pytest.approx(before["x"] + before["width"] / 2, abs=1)


def test_all_open_and_all_closed(unet: Page) -> None:
    unet.click("#close-all")
    assert titles(unet) == ["x", "Level", "output_1"]
    unet.click("#open-all")
    settle(unet)
    unet.keyboard.press("0")
    settle(unet)
    assert unet.locator("#world .node.module.closed").count() == 0
    assert unet.locator("#world .node.module.open").count() == 4


def test_levels_open_from_outside_and_close_from_inside(unet: Page) -> None:
    unet.click("#close-all")
    counts = []
    for _ in range(4):
        unet.click("#open-level")
        unet.keyboard.press("0")
        settle(unet)
        counts.append(unet.locator("#world .node.open").count())
    assert counts == [1, 2, 3, 4]
    unet.keyboard.press("[")
    unet.keyboard.press("0")
    settle(unet)
    assert unet.locator("#world .node.open").count() == 3


def test_closing_what_the_selected_node_is_in_selects_the_closed_box(unet: Page) -> None:
    unet.keyboard.press("x")
    assert selected(unet) == "Level"
    assert fragment(unet) in ("#module=:1", "#module=inner.inner:1")


def test_a_long_flat_run_is_cut_into_groups_of_which_each_is_named_after_its_ends(
    browser: Browser, page_html: Callable[[str], str], tmp_path: Path
) -> None:
    with shown(browser, page_html("flat"), tmp_path) as page:
        assert page.locator("#world .node.group.closed").count() > 5
        first = page.locator("#world .node.group").first
        assert first.locator(".title").text_content() == "tanh_1:1 … relu_1:12"
        assert first.locator(".line").text_content() == "48 ops"
        first.locator("> .toggle").click()
        assert "tanh_1:1" in titles(page)


def test_arrows_go_on_past_what_leads_nowhere(browser: Browser, tmp_path: Path) -> None:
    trace = tl.trace(nn.Sequential(nn.BatchNorm1d(2), nn.ReLU()), torch.randn(3, 2))
    with shown(browser, html_of(trace), tmp_path, fragment="#op=batch_norm_1") as page:
        page.click("#open-all")
        for title in ("1", "output_1"):
            page.keyboard.press("ArrowDown")
            assert selected(page) == title


def test_arrows_go_along_edges_and_to_siblings(
    browser: Browser, page_html: Callable[[str], str], tmp_path: Path
) -> None:
    with shown(browser, page_html("unet"), tmp_path, fragment="#op=input_1") as page:
        page.keyboard.press("x")
        for key, title in [
            ("ArrowDown", "Level"),
            ("ArrowDown", "output_1"),
            ("ArrowUp", "Level"),
            ("ArrowLeft", "x"),
            ("ArrowRight", "Level"),
        ]:
            page.keyboard.press(key)
            assert selected(page) == title, key
        page.keyboard.press("Enter")
        page.keyboard.press("ArrowDown")
        assert selected(page) == "down"
        page.keyboard.press("ArrowDown")
        assert selected(page) == "relu_1"
        page.keyboard.press("Backspace")
        assert selected(page) == "Level"


def test_escape_closes_one_thing_at_a_time(unet: Page) -> None:
    unet.keyboard.press("p")
    unet.keyboard.press("?")
    assert unet.locator("#help").is_visible()
    assert "search" in (unet.locator("#help").text_content() or "")
    unet.keyboard.press("Escape")
    assert not unet.locator("#help").is_visible()
    assert unet.locator("#details").is_visible()
    unet.keyboard.press("Escape")
    assert not unet.locator("#details").is_visible()
    unet.keyboard.press("Escape")
    assert selected(unet) == ""


def transform(page: Page) -> str:
    settle(page)
    return page.locator("#world").get_attribute("transform") or ""


def test_drag_wheel_and_keys_move_and_zoom(unet: Page) -> None:
    places = [transform(unet)]
    unet.mouse.move(300, 400)
    unet.mouse.down()
    unet.mouse.move(360, 440, steps=4)
    unet.mouse.up()
    places.append(transform(unet))
    unet.mouse.wheel(0, 120)
    places.append(transform(unet))
    unet.keyboard.down("Control")
    unet.mouse.wheel(0, -120)
    unet.keyboard.up("Control")
    places.append(transform(unet))
    for key in "+-0":
        unet.keyboard.press(key)
        places.append(transform(unet))
    assert all(before != after for before, after in pairwise(places))


def test_a_drag_selects_nothing(unet: Page) -> None:
    unet.keyboard.press("Escape")
    box = unet.locator("#world .node").first.bounding_box()
    assert box is not None
    unet.mouse.move(box["x"] + 5, box["y"] + 5)
    unet.mouse.down()
    unet.mouse.move(box["x"] + 80, box["y"] + 60, steps=4)
    unet.mouse.up()
    assert selected(unet) == ""
