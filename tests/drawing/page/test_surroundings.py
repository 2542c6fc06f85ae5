"""A page in a notebook's frame, in the browser's history, on paper and in high contrast."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.drawing.page.opening import find, fragment, node, selected, settle, shown
from torchlens.drawing.picture import Page as Drawn

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Pages = Callable[[str], str]


@pytest.mark.parametrize("frame", ["<iframe", "<iframe sandbox='allow-scripts'"], ids=["notebook", "sandbox"])
def test_in_a_frame_all_works_and_the_page_around_it_stays_where_it_is(
    browser: Browser, page_html: Pages, tmp_path: Path, frame: str
) -> None:
    file = tmp_path / "notebook.html"
    file.write_text(Drawn(page_html("resnet"))._repr_html_().replace("<iframe", frame), encoding="utf-8")
    around = browser.new_page()
    complaints: list[str] = []
    around.on("console", lambda message: complaints.append(message.text))
    around.on("pageerror", lambda error: complaints.append(str(error)))
    around.goto(file.as_uri())
    inner = around.frames[1]
    inner.wait_for_selector("html[data-ready]", state="attached")
    before = around.evaluate("() => history.length")
    for words in ("mean_1", "add_2"):
        inner.fill("#search", words)
        inner.press("#search", "Enter")
        inner.wait_for_selector("#world .node.selected")
    inner.click("#theme")
    assert inner.locator("#world .node.selected > .title").text_content() == "add_2"
    assert (around.url, around.evaluate("() => history.length")) == (file.as_uri(), before)
    assert complaints == []
    around.close()


@pytest.mark.parametrize("given", ["#op=linear_1:1", "#op=linear_1&view=unrolled", "#op=no_such"])
def test_an_address_with_another_name_for_a_node_is_no_step_that_back_returns_to(
    browser: Browser, page_html: Pages, tmp_path: Path, given: str
) -> None:
    with shown(browser, page_html("resnet"), tmp_path, fragment=given) as page:
        assert page.evaluate("() => history.length") == 2  # the empty window, and this
        find(page, "add_2")
        page.go_back()
        settle(page)
        assert fragment(page) == ("" if "no_such" in given else "#op=linear_1")
        assert selected(page) == ("" if "no_such" in given else "fc")
        assert page.evaluate("() => history.length") == 3


def test_on_paper_stands_what_the_window_shows_without_its_buttons(
    browser: Browser, page_html: Pages, tmp_path: Path
) -> None:
    with shown(browser, page_html("resnet"), tmp_path) as page:
        page.emulate_media(media="print")
        page.evaluate("() => dispatchEvent(new Event('beforeprint'))")
        assert page.get_attribute("#stage", "viewBox") is not None
        assert not page.locator("#open-all").is_visible()
        assert not page.locator("#zoom").is_visible()
        page.evaluate("() => dispatchEvent(new Event('afterprint'))")
        assert page.get_attribute("#stage", "viewBox") is None


def test_in_high_contrast_the_legend_has_the_colors_of_the_nodes(
    browser: Browser, page_html: Pages, tmp_path: Path
) -> None:
    with shown(browser, page_html("resnet"), tmp_path, forced_colors="active") as page:
        page.click("#close-all")
        page.select_option("#color", "time")
        fill = node(page, "SmallResNet").locator(".body").evaluate("(body) => getComputedStyle(body).fill")
        swatch = page.locator("#legend .swatch").first
        assert swatch.evaluate("(element) => getComputedStyle(element).backgroundColor") == fill


def test_an_address_that_names_nothing_is_told_so(browser: Browser, page_html: Pages, tmp_path: Path) -> None:
    with shown(browser, page_html("resnet"), tmp_path, fragment="#op=nothing_1:1") as page:
        said = page.get_by_role("status")
        assert said.text_content() == "There is no op nothing_1:1 here."
        box = said.bounding_box()
        assert box is not None
        assert box["width"] > 100
        page.keyboard.press("Escape")
        assert page.locator("#status.aloud").count() == 0
