"""Names are text: no name of a module, a class, a file or a page becomes markup or script."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests.drawing.page.opening import find, settle, shown
from torchlens.drawing.one_run import build_scene
from torchlens.drawing.page import page_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "<!--<script>",
    "'quotes\" and \\backslashes\\u003c",
    "new\nline\ttab\x07bell\x00",
    "\u202eright to left\u2066",
    "emoji 🧠 字",
    "lone \ud800 surrogate",
    "__proto__",
    "constructor",
    "{{x}} @@data@@ ${1+1} %3Cb%3E &lt;b&gt;",
    "\u2028line separators\u2029",
    "x" * 3000,
]


class Hostile(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        for name in NAMES:
            inner = type(f"{name}.Class".replace("\x00", "").replace("\ud800", ""), (nn.Sequential,), {})(
                nn.Linear(2, 2), nn.ReLU()
            )
            self._modules[name] = inner

    def forward(self, x: Tensor) -> Tensor:
        for inner in self._modules.values():
            assert inner is not None
            x = inner(x)
        return x


@pytest.fixture(scope="module")
def hostile() -> str:
    trace = tl.trace(Hostile(), torch.ones(1, 2))
    scenes = [build_scene(trace._views, rolled=rolled) for rolled in (False, True)]
    return page_of(scenes, title="</title><script>alert(1)</script>\ud800")


def test_hostile_names_are_shown_as_text(browser: Browser, hostile: str, tmp_path: Path) -> None:
    with shown(browser, hostile, tmp_path, viewport={"width": 1300, "height": 4000}) as page:
        page.on("dialog", lambda dialog: pytest.fail(f"a script ran: {dialog.message}"))
        before = page.evaluate("() => document.querySelectorAll('script, img').length")
        page.click("#open-all")
        page.keyboard.press("0")
        page.click("#panel-button")
        settle(page)
        text = page.locator("#world").evaluate("(world) => world.textContent")
        for shown_name in [
            "<script>alert(1)</script>",
            '"><img src=x onerror=alert(1)>',
            "\\u202eright to left\\u2066",
            "emoji 🧠 字",
            "__proto__",
        ]:
            assert shown_name in text
        for part in page.locator("#world .node.module").all()[:20]:
            part.locator("> .title").dispatch_event("click", {"bubbles": True})
            settle(page)
            assert page.locator("#details h2").text_content()
        assert page.evaluate("() => document.querySelectorAll('script, img').length") == before == 2
        assert page.title() == "</title><script>alert(1)</script>\\ud800"


def test_hostile_names_can_be_searched_for_and_linked_to(
    browser: Browser, hostile: str, tmp_path: Path
) -> None:
    with shown(browser, hostile, tmp_path) as page:
        find(page, "<script>alert(1)</script>")
        fragment = page.evaluate("() => location.hash")
        assert "<" not in fragment
    with shown(browser, hostile, tmp_path, fragment=fragment) as page:
        settle(page)
        assert (page.locator("#world .node.selected > .title").text_content() or "").startswith("<script>")


def test_no_name_ends_the_data(hostile: str) -> None:
    assert hostile.count("</script>") == 2
    assert hostile.count("<script") == 2
    hostile.encode("utf-8")


def test_no_text_is_wider_than_its_node(browser: Browser, hostile: str, tmp_path: Path) -> None:
    with shown(browser, hostile, tmp_path, viewport={"width": 1300, "height": 4000}) as page:
        page.click("#open-all")
        settle(page)
        over = page.evaluate(
            """() => [...document.querySelectorAll("#world .node")].flatMap((node) => {
                const body = node.querySelector(".body").getBoundingClientRect();
                const isOver = (text) => text.getBoundingClientRect().right > body.right + 0.5;
                const texts = [...node.querySelectorAll("text")];
                return texts.filter(isOver).map((text) => text.textContent);
            })"""
        )
        assert over == []
