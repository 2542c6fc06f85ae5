"""What a page says of ops, modules and edges: on hover, and in the panel."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests.drawing.page.opening import find, fragment, node, selected, settle, shown
from tests.drawing.page.shapes import html_of, traced

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


def panel(page: Page) -> str:
    settle(page)
    return page.locator("#details-body").inner_text()


def card(page: Page) -> str:
    return page.locator("#card").inner_text()


class Awkward(nn.Module):
    """Values that are not finite, and a function with several inputs."""

    def forward(self, x: Tensor) -> Tensor:
        bad = torch.log(x - 1)
        return torch.where(x > 0, bad, x)


def test_hovering_shows_shape_dtype_time_and_statistics(browser: Browser, tmp_path: Path) -> None:
    trace = tl.trace(Awkward(), torch.tensor([[0.0, 1.0, 2.0, 3.0]]))
    with shown(browser, html_of(trace), tmp_path) as page:
        node(page, "log_1").hover()
        text = card(page)
        assert re.search(r"shape\s+1×4", text)
        assert re.search(r"dtype\s+float32", text)
        assert re.search(r"time\s+[\d.]+ (ns|µs|ms)", text)
        assert re.search(r"FLOPs\s+4 FLOPs", text)
        assert re.search(r"bytes\s+16 B", text)
        assert re.search(r"min … max\s+0 … 0\.693", text)
        assert re.search(r"NaN\s+1 of 4", text)
        assert re.search(r"infinite\s+1 of 4", text)
        page.mouse.move(5, 700)
        assert not page.locator("#card").is_visible()


def test_hovering_an_edge_shows_its_shape_and_the_argument_it_fills(browser: Browser, tmp_path: Path) -> None:
    trace = tl.trace(Awkward(), torch.ones(1, 4))
    with shown(browser, html_of(trace), tmp_path) as page:
        part = node(page, "log_1").get_attribute("data-part")
        middle = page.evaluate(
            """(part) => {
                const wire = document.querySelector(`#world .edge[data-from="${part}"] .wire`);
                const point = wire.getPointAtLength(wire.getTotalLength() / 2), matrix = wire.getScreenCTM();
                return [point.x * matrix.a + matrix.e, point.y * matrix.d + matrix.f];
            }""",
            part,
        )
        page.mouse.move(*middle)
        assert "log_1 → where_1" in card(page)
        assert "1×4 · as self" in card(page)


def test_a_click_shows_all_of_an_op(browser: Browser, tmp_path: Path) -> None:
    trace = tl.trace(Awkward(), torch.ones(1, 4) * 3)
    with shown(browser, html_of(trace), tmp_path) as page:
        node(page, "where_1").click()
        text = panel(page)
        assert selected(page) == "where_1"
        assert fragment(page) == "#op=where_1"
        for name, value in [
            ("label", "where_1:1"),
            ("function", "where"),
            ("shape", "1×4"),
            ("device", "cpu"),
        ]:
            assert re.search(rf"{name}\s+{value}", text), name
        line = next(
            n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "torch.where(" in text
        )
        assert f"{Path(__file__).name}:{line} in Awkward.forward" in text
        assert "return torch.where(x > 0, bad, x)" in text
        assert re.search(r"mean\s+0\.693", text)
        assert page.locator("#details .histogram rect").count() >= 1
        assert "Histogram from 0.693" in (
            page.locator("#details .histogram svg").get_attribute("aria-label") or ""
        )


def test_parents_and_children_are_links(browser: Browser, tmp_path: Path) -> None:
    trace = tl.trace(Awkward(), torch.ones(1, 4))
    with shown(browser, html_of(trace), tmp_path) as page:
        node(page, "where_1").click()
        parents = page.locator("#details section").filter(has_text="Parents").locator("button.link")
        assert [text.split("1×4")[0] for text in parents.all_text_contents()] == ["gt_1", "log_1", "input_1"]
        parents.filter(has_text="log_1").click()
        assert selected(page) == "log_1"
        page.locator("#details section").filter(has_text="Children").locator("button.link").click()
        assert selected(page) == "where_1"


def test_parameters_and_buffers_stand_with_the_op_that_reads_them(
    browser: Browser, page_html: Callable[[str], str], tmp_path: Path
) -> None:
    with shown(browser, page_html("resnet"), tmp_path, fragment="#op=batch_norm_1") as page:
        page.keyboard.press("p")
        text = panel(page)
        assert "stages.0.0.bn1.weight" in text
        assert "stages.0.0.bn1.running_mean" in text
        assert re.search(r"class\s+BatchNorm2d", text)
        page.keyboard.press("0")
        settle(page)
        assert page.locator("#world .node.kind-buffer").count() == 0


def test_a_buffer_that_was_written_has_its_name(browser: Browser, tmp_path: Path) -> None:
    trace = tl.trace(nn.Sequential(nn.BatchNorm1d(2), nn.ReLU()), torch.randn(3, 2))
    with shown(browser, html_of(trace), tmp_path) as page:
        page.click("#open-all")
        node(page, "running_mean").click()
        assert re.search(r"name\s+0\.running_mean", panel(page))
        find(page, "0.running_var")
        assert selected(page) == "running_var"


def test_a_click_on_a_module_shows_its_class_calls_and_totals(
    browser: Browser, page_html: Callable[[str], str], tmp_path: Path
) -> None:
    with shown(browser, page_html("recurrent"), tmp_path, fragment="#view=rolled") as page:
        node(page, "cell").locator("> .title").click()
        text = panel(page)
        for pattern in [
            r"class\s+Cell",
            r"5 calls\s+cell:1, cell:2",
            r"parameters\s+112 numbers",
            r"ops\s+15",
            r"time\s+[\d.]+",
        ]:
            assert re.search(pattern, text), pattern
        assert "gates" in text


def test_the_passes_of_a_layer_can_be_looked_at_one_by_one(
    browser: Browser, page_html: Callable[[str], str], tmp_path: Path
) -> None:
    with shown(browser, page_html("recurrent"), tmp_path, fragment="#op=tanh_2&view=rolled") as page:
        page.keyboard.press("p")
        assert re.search(r"label\s+tanh_2:1", panel(page))
        page.select_option("#details select", label="tanh_2:4")
        assert re.search(r"label\s+tanh_2:4", panel(page))
        page.get_by_text("show this pass").click()
        assert selected(page) == "tanh_2:4"
        assert fragment(page) == "#op=tanh_2:4"


def test_why_a_value_is_not_there_is_said(browser: Browser, tmp_path: Path) -> None:
    trace = tl.trace(Awkward(), torch.ones(1, 4), save=[])
    with shown(browser, html_of(trace), tmp_path, fragment="#op=log_1") as page:
        page.keyboard.press("p")
        assert "log_1" in panel(page)
        assert "not kept" in panel(page) or "not saved" in panel(page)
        assert page.locator("#details .histogram").count() == 0


def test_without_statistics_no_value_is_read(browser: Browser, tmp_path: Path) -> None:
    html = html_of(traced("unet"), statistics=False)
    with shown(browser, html, tmp_path, fragment="#op=relu_1") as page:
        page.keyboard.press("p")
        assert "values were not read" in panel(page)


@pytest.mark.parametrize(
    ("button", "dimmed", "bright"),
    [("upstream", "output_1", "x"), ("downstream", "x", "output_1")],
)
def test_upstream_and_downstream_of_a_node_stay_bright(
    browser: Browser, page_html: Callable[[str], str], tmp_path: Path, button: str, dimmed: str, bright: str
) -> None:
    with shown(browser, page_html("unet"), tmp_path, viewport={"width": 1300, "height": 5000}) as page:
        page.keyboard.press("]")
        node(page, "down").click()
        page.get_by_role("button", name=button).click()
        settle(page)
        assert "dim" in (node(page, dimmed).get_attribute("class") or "").split()
        assert "dim" not in (node(page, bright).get_attribute("class") or "").split()
