"""A page opens by itself: nothing is asked for, nothing complains, and what is seen at first can be read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.drawing.page.opening import shown, titles

if TYPE_CHECKING:
    from playwright.sync_api import Browser

MODELS = ("resnet", "unet", "recurrent", "flat")


@pytest.mark.parametrize("name", MODELS)
def test_a_page_opens_without_a_complaint_or_a_request(
    browser: Browser, page_html: Callable[[str], str], tmp_path: Path, name: str
) -> None:
    with shown(browser, page_html(name), tmp_path) as page:
        assert titles(page)[0] in ("image", "x")
        assert page.title() == "A model"
        assert page.locator("h1").text_content() == "A model"


@pytest.mark.parametrize("name", MODELS)
def test_what_is_open_at_first_is_at_most_sixty_nodes(
    browser: Browser, page_html: Callable[[str], str], tmp_path: Path, name: str
) -> None:
    with shown(browser, page_html(name), tmp_path, viewport={"width": 6000, "height": 9000}) as page:
        closed = page.locator("#world .node.closed").count()
        assert 2 < closed <= 60


def test_the_policy_forbids_everything_but_the_pages_own_script_and_style(
    browser: Browser, page_html: Callable[[str], str], tmp_path: Path
) -> None:
    html = page_html("resnet")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    assert policy is not None
    assert "default-src 'none'" in policy[1]
    assert "unsafe" not in policy[1]
    file = tmp_path / "page.html"
    file.write_text(html, encoding="utf-8")
    page = browser.new_page()
    page.goto(file.as_uri())
    blocked = """() => new Promise((done) => {
        addEventListener("securitypolicyviolation", (event) => done(event.violatedDirective));
        const script = document.createElement("script");
        script.textContent = "window.ran = 1";
        document.body.append(script);
    })"""
    assert page.evaluate(blocked).startswith("script-src")
    assert page.evaluate("() => window.ran") is None
    page.close()


def test_the_data_is_one_block_of_json(page_html: Callable[[str], str]) -> None:
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', page_html("unet"))
    assert found is not None
    data = json.loads(found[1])
    assert [scene["rolled"] for scene in data["scenes"]] == [False, True]
    assert found[1].isascii()


def test_the_page_refers_to_nothing_outside(page_html: Callable[[str], str]) -> None:
    html = page_html("unet").replace("http://www.w3.org/2000/svg", "")
    assert "http:" not in html
    assert "https:" not in html
    assert "@import" not in html
    assert "url(" not in html
