from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING

import pytest

from tests.browser import chromium
from tests.drawing.page.shapes import html_of, traced

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="session")
def page_html() -> Callable[[str], str]:
    """The page of a model, by the model's name in shapes.py."""
    return cache(lambda name: html_of(traced(name)))
