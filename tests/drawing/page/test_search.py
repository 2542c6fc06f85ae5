"""Search finds ops, layers, modules and lines of code, opens what they are in, and goes there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.drawing.page import shapes
from tests.drawing.page.opening import find, fragment, selected, settle, shown

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture
def resnet(browser: Browser, page_html: Callable[[str], str], tmp_path: Path) -> Iterator[Page]:
    with shown(browser, page_html("resnet"), tmp_path) as page:
        page.keyboard.press("x")
        yield page


def line_of(text: str) -> str:
    """`shapes.py:12`, where the text stands."""
    lines = Path(shapes.__file__).read_text().splitlines()
    return f"shapes.py:{next(number for number, line in enumerate(lines, 1) if text in line)}"


@pytest.mark.parametrize(
    ("words", "title", "address"),
    [
        pytest.param("add_3", "add_3", "#op=add_3", id="label"),
        pytest.param("batch_norm_2", "bn1", "#op=batch_norm_2", id="label of a module's only op"),
        pytest.param("stages.1.0.conv2", "conv2", "#op=conv2d_7", id="address of a module with one op"),
        pytest.param("stages.1.1", "stages.1.1", "#module=stages.1.1:1", id="address"),
        pytest.param("SmallResNet", "SmallResNet", "#module=:1", id="class"),
        pytest.param("MEAN", "mean_1", "#op=mean_1", id="function, in capitals"),
        pytest.param(line_of("x.mean("), "mean_1", "#op=mean_1", id="file and line"),
        pytest.param("self.fc(x.mean", "mean_1", "#op=mean_1", id="text of a line"),
        pytest.param("relu_1:2", "relu:2", "#op=relu_1:2", id="a pass"),
    ],
)
def test_a_search_goes_to_the_node(resnet: Page, words: str, title: str, address: str) -> None:
    find(resnet, words)
    assert selected(resnet) == title
    assert fragment(resnet) == address
    box = resnet.locator("#world .node.selected").bounding_box()
    assert box is not None
    assert 0 < box["x"] < 1300
    assert 40 < box["y"] < 850


def test_the_slash_key_searches_and_arrows_choose(resnet: Page) -> None:
    resnet.keyboard.press("/")
    resnet.keyboard.type("conv1")
    names = resnet.locator("#results .result").all_text_contents()
    assert resnet.locator("[role=status]").text_content() == "8 found"
    assert names[:4] == ["conv1Conv2d"] * 4
    resnet.keyboard.press("ArrowDown")
    resnet.keyboard.press("ArrowDown")
    resnet.keyboard.press("ArrowUp")
    resnet.keyboard.press("Enter")
    settle(resnet)
    assert fragment(resnet) == "#op=conv2d_4"
    assert not resnet.locator("#results").is_visible()


def test_a_click_on_a_result_goes_there(resnet: Page) -> None:
    resnet.fill("#search", "linear_1")
    resnet.locator("#results [role=option]").first.click()
    assert selected(resnet) == "fc"


def test_nothing_found_is_said_and_escape_leaves(resnet: Page) -> None:
    resnet.fill("#search", "no such thing")
    assert "Nothing" in resnet.locator("#results").inner_text()
    assert "Nothing" in (resnet.locator("[role=status]").text_content() or "")
    resnet.keyboard.press("Escape")
    assert not resnet.locator("#results").is_visible()


def test_keys_typed_into_the_search_do_nothing_else(resnet: Page) -> None:
    resnet.focus("#search")
    resnet.keyboard.type("rod0?")
    assert resnet.evaluate("() => document.documentElement.dataset.theme") == "light"
    assert not resnet.locator("#help").is_visible()
    assert resnet.input_value("#search") == "rod0?"
