"""The browser that tests of pages use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import browser as browsers
from tests.browser import chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


def test_it_opens_a_page_from_a_file_and_runs_its_script(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(
        "<meta charset=utf-8><title>2×3</title><script>document.title += ' · 6'</script>", "utf-8"
    )
    page = browser.new_page()
    page.goto(file.as_uri())
    assert page.title() == "2×3 · 6"
    page.close()


@pytest.mark.parametrize(("required", "outcome"), [("1", pytest.fail), ("", pytest.skip)])
def test_without_a_browser_a_test_is_skipped_but_fails_under_tox(
    monkeypatch: pytest.MonkeyPatch, required: str, outcome: type
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv(browsers.REQUIRED, required)
    with pytest.raises(outcome.Exception, match=r"none of chromium, .* is on the PATH: apt-get install"):
        browsers.command()
