"""Pages in a browser, and what may be asked of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page


@contextmanager
def shown(browser: Browser, html: str, folder: Path, *, fragment: str = "", **options: Any) -> Iterator[Page]:
    """A page in a window of its own; fails if it complained, or asked for anything but itself."""
    file = folder / "page.html"
    file.write_text(html, encoding="utf-8")
    options = {"viewport": {"width": 1300, "height": 850}, "reduced_motion": "reduce"} | options
    context = browser.new_context(**options)
    page = context.new_page()
    page.set_default_timeout(8000)
    complaints: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    try:
        page.goto(file.as_uri() + fragment)
        page.wait_for_selector("html[data-ready]", state="attached")
        yield page
        assert complaints == []
        assert {url.partition("#")[0] for url in requests} == {file.as_uri()}
    finally:
        context.close()


def node(page: Page, title: str) -> Locator:
    """The node whose first line is the title, the first where there are several; waits for the next frame."""
    settle(page)
    text = page.locator(".title", has_text=re.compile(f"^{re.escape(title)}$"))
    return page.locator("#world .node").filter(has=text).first


def titles(page: Page) -> list[str]:
    """The first lines of all nodes in sight."""
    settle(page)
    return page.locator("#world .node > .title").all_text_contents()


def settle(page: Page) -> None:
    """Wait until what was asked for is drawn."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def selected(page: Page) -> str:
    """The first line of the selected node; empty if none is."""
    settle(page)
    found = page.locator("#world .node.selected > .title").all_text_contents()
    return found[0] if found else ""


def find(page: Page, text: str) -> None:
    """Search for a text and take the first that is found."""
    page.fill("#search", text)
    page.keyboard.press("Enter")
    settle(page)


def fragment(page: Page) -> str:
    """The part of the address after and with the #."""
    return page.evaluate("() => location.hash")
