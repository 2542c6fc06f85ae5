"""A headless Chromium for the tests of pages, which are skipped where there is none, but not under tox."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

COMMANDS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
REQUIRED = "TORCHLENS_ALL_PACKAGES"  # set by tox


def command() -> str:
    """Where the browser is; the test that asks is skipped, or fails under tox, if there is none."""
    found = next(filter(None, map(shutil.which, COMMANDS)), None)
    if found is None:
        missing(f"none of {', '.join(COMMANDS)} is on the PATH: apt-get install chromium")
    return found


def missing(what: str) -> None:
    (pytest.fail if os.environ.get(REQUIRED) else pytest.skip)(what)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser to open pages in, closed at the end of the block.

    Starting one takes a second, so that a test file has one fixture for it, of scope "module". No longer:
    while it is open, `asyncio.run` is impossible on this thread.
    """
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("playwright is not installed: pip install playwright")
    path = command()
    options = ["--disable-dev-shm-usage"]  # containers have a small /dev/shm
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        options.append("--no-sandbox")  # as root, Chromium starts without its sandbox only
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, headless=True, args=options)
        try:
            yield browser
        finally:
            browser.close()
