"""Rolled and unrolled, colors and their legend, light and dark, and the address that names a node."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests.drawing.page.opening import find, fragment, node, selected, settle, shown, titles
from tests.drawing.page.shapes import html_of, traced
from tests.drawing.traces import Runs
from torchlens._trace.op import Op
from torchlens.drawing.one_run import build_scene
from torchlens.drawing.page import page_of
from torchlens.drawing.quantities import ColorBy, quantity_of
from torchlens.drawing.scene import Mark

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Pages = Callable[[str], str]


def theme(page: Page) -> str:
    return page.evaluate("() => document.documentElement.dataset.theme")


def ground(page: Page) -> str:
    return page.evaluate("() => getComputedStyle(document.body).backgroundColor")


def test_the_rolled_view_has_each_layer_once_with_its_passes_and_what_goes_back(
    browser: Browser, page_html: Pages, tmp_path: Path
) -> None:
    size = {"width": 2500, "height": 2500}
    with shown(browser, page_html("recurrent"), tmp_path, viewport=size) as page:
        assert "cell:5" in titles(page)
        page.get_by_role("button", name="Rolled", exact=True).click()
        page.keyboard.press("o")
        page.keyboard.press("0")
        found = titles(page)
        assert len(found) == len(set(found))
        assert node(page, "cat_1").locator(".badge-text").text_content() == "×5"
        back = page.locator("#world .edge.back")
        assert back.locator(".count text").all_text_contents() == ["×4", "×4"]
        dashes = back.first.locator(".wire").evaluate("(wire) => getComputedStyle(wire).strokeDasharray")
        assert dashes != "none"
        page.keyboard.press("r")
        assert fragment(page) == ""


def test_what_one_output_of_a_call_gives_to_another_goes_back(
    browser: Browser, page_html: Pages, tmp_path: Path
) -> None:
    with shown(browser, page_html("over_time"), tmp_path, fragment="#view=rolled") as page:
        page.click("#open-all")
        parts = {node(page, name).get_attribute("data-part"): name for name in ("lstm_cell_1", "lstm_cell_2")}
        back = page.locator("#world .edge.back")
        ends = [(edge.get_attribute("data-from"), edge.get_attribute("data-to")) for edge in back.all()]
        assert sorted(ends) == sorted(product(parts, parts))
        assert back.locator(".count text").all_text_contents() == ["×4"] * 4


def test_a_closed_module_that_feeds_itself_has_a_loop_until_it_is_opened(
    browser: Browser, page_html: Pages, tmp_path: Path
) -> None:
    with shown(browser, page_html("recurrent"), tmp_path, fragment="#module=cell&view=rolled") as page:
        cell = node(page, "cell").get_attribute("data-part")
        loop = page.locator(f'#world .edge.back[data-from="{cell}"][data-to="{cell}"]')
        if node(page, "cell").get_attribute("aria-expanded") == "true":
            page.keyboard.press("Enter")
        settle(page)
        assert loop.locator(".count").text_content() == "×4"
        page.keyboard.press("Enter")
        settle(page)
        assert loop.count() == 0


def test_a_page_may_begin_rolled(browser: Browser, tmp_path: Path) -> None:
    trace = traced("recurrent")
    scenes = [build_scene(trace._views, rolled=rolled) for rolled in (True, False)]
    html = page_of(scenes, title="Rolled first")
    with shown(browser, html, tmp_path) as page:
        assert "cell" in titles(page)
        find(page, "tanh_2")
        assert fragment(page) == "#op=tanh_2"
        page.keyboard.press("r")
        assert fragment(page) == "#op=tanh_2:1&view=unrolled"


def test_the_selected_node_is_kept_where_the_other_view_has_it(
    browser: Browser, page_html: Pages, tmp_path: Path
) -> None:
    with shown(browser, page_html("recurrent"), tmp_path, fragment="#op=tanh_1:3") as page:
        page.keyboard.press("r")
        assert selected(page) == "tanh_1"
        assert fragment(page) == "#op=tanh_1&view=rolled"
        page.keyboard.press("p")
        assert page.locator("#details option:checked").text_content() == "tanh_1:3"
        page.keyboard.press("r")
        assert selected(page) == "tanh_1:3"


def legend(page: Page) -> str:
    settle(page)
    return page.locator("#legend").inner_text()


def test_colors_by_function_name_the_families_that_are_shown(
    browser: Browser, page_html: Pages, tmp_path: Path
) -> None:
    with shown(browser, page_html("resnet"), tmp_path) as page:
        page.click("#close-all")
        assert "normalization" not in legend(page)
        page.click("#open-all")
        assert "normalization" in legend(page)


@pytest.mark.parametrize(("color", "unit"), [("time", "s"), ("flops", "FLOPs"), ("bytes", "B")])
def test_a_quantity_colors_closed_modules_by_what_is_in_them(
    browser: Browser, page_html: Pages, tmp_path: Path, color: str, unit: str
) -> None:
    with shown(browser, page_html("resnet"), tmp_path) as page:
        page.click("#close-all")
        page.select_option("#color", color)
        assert "filled q5" in (node(page, "SmallResNet").get_attribute("class") or "")
        assert unit in legend(page)
        assert "not known" in legend(page)
        page.select_option("#color", "none")
        settle(page)
        assert not page.locator("#legend").is_visible()


@pytest.mark.parametrize(
    ("name", "size"),
    [("resnet", (1300, 850)), ("unet", (900, 500)), ("flat", (1300, 850)), ("unet", (600, 800))],
)
def test_after_fit_no_node_lies_below_the_legend(
    browser: Browser, page_html: Pages, tmp_path: Path, name: str, size: tuple[int, int]
) -> None:
    window = dict(zip(("width", "height"), size))
    with shown(browser, page_html(name), tmp_path, viewport=window) as page:
        page.click("#open-all")
        page.click("#fit")
        settle(page)
        assert page.locator("#legend-list").is_visible() is (size[0] > 700)
        legend = page.locator("#legend").bounding_box()
        assert legend is not None
        for body in page.locator("#world .node.closed > .body").all():
            box = body.bounding_box()
            assert box is not None
            assert box["x"] >= legend["x"] + legend["width"] or box["y"] + box["height"] <= legend["y"]


def test_the_legend_is_folded_away_and_back_by_mouse_or_key(
    browser: Browser, page_html: Pages, tmp_path: Path
) -> None:
    with shown(browser, page_html("unet"), tmp_path) as page:
        title, colors = page.locator("#legend-title"), page.locator("#legend-list")
        title.click()
        assert not colors.is_visible()
        title.press("Enter")
        assert colors.is_visible()


def depth(op: Op) -> int:
    return op.module.address.count(".")


def kind(op: Op) -> str:
    return "many" if op.flops is not None and op.flops > 100 else "few"


def negative(op: Op) -> float | None:
    return -float(op.index) if op.kind == "call" else None


@pytest.mark.parametrize(
    ("color_by", "name", "texts"),
    [
        ("flops", "FLOPs", ["FLOPs"]),
        (depth, "depth", ["from 0", "from 1"]),
        (kind, "kind", ["few", "many"]),
        (negative, "negative", ["from -"]),
    ],
)
def test_the_page_begins_with_the_colors_that_were_asked_for(
    browser: Browser, tmp_path: Path, color_by: ColorBy, name: str, texts: list[str]
) -> None:
    html = html_of(traced("resnet"), color_by=quantity_of(color_by))
    with shown(browser, html, tmp_path) as page:
        page.click("#open-all")
        assert page.locator("#color option:checked").text_content() == name
        for text in texts:
            assert text in legend(page)


@pytest.mark.parametrize(
    ("color_by", "texts"),
    [
        (lambda op: None, ["not known"]),
        (lambda op: -1, ["-1", "not known"]),
        (lambda op: (-1e308, 1e308)[op.index % 2], ["from 6.667e+307", "from 3.333e+307"]),
        (lambda op: ("several", 2)[op.index % 2], ["2", "2, several", "several"]),
    ],
    ids=["nothing", "one number", "numbers without a finite distance", "words and numbers"],
)
def test_whatever_the_colors_are_asked_to_show_the_legend_says_it(
    browser: Browser, tmp_path: Path, color_by: ColorBy, texts: list[str]
) -> None:
    html = html_of(traced("flat"), color_by=quantity_of(color_by))
    with shown(browser, html, tmp_path, fragment="#op=tanh_1:1") as page:
        settle(page)
        assert page.locator("#legend li").all_text_contents()[: len(texts)] == texts
        assert "NaN" not in legend(page)


def time(op: Op) -> float:
    return 7.0


def flops(op: Op) -> str:
    return "dear" if op.type == "relu" else "cheap"


@pytest.mark.parametrize(
    ("color_by", "texts"), [(time, ["7", "not known"]), (flops, ["cheap", "cheap, dear"])]
)
def test_a_function_that_is_called_like_a_quantity_of_the_page_is_asked_all_the_same(
    browser: Browser, tmp_path: Path, color_by: ColorBy, texts: list[str]
) -> None:
    with shown(browser, html_of(traced("flat"), color_by=quantity_of(color_by)), tmp_path) as page:
        settle(page)
        assert page.locator("#legend li").all_text_contents() == texts
        page.select_option("#color", label={time: "Time", flops: "FLOPs"}[color_by])
        settle(page)
        assert page.locator("#legend li").all_text_contents() != texts


class ManyAndOne(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Runs(lambda _, x: torch.tanh(many_times(x)))

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


def many_times(x: Tensor) -> Tensor:
    for _ in range(9):
        x = torch.relu(x)
    return x


def ten_or_none(op: Op) -> float:
    return 10.0 if op.type == "relu" else 0.0


def word(op: Op) -> str:
    return f"{op.type} of {'many' if op.type == 'relu' else 'one'}"


@pytest.mark.parametrize(("color_by", "text"), [(ten_or_none, "9"), (word, "relu of many, tanh of one")])
def test_a_module_has_the_mean_of_its_ops_or_their_words_as_in_a_picture(
    browser: Browser, tmp_path: Path, color_by: ColorBy, text: str
) -> None:
    html = html_of(tl.trace(ManyAndOne(), torch.ones(2)), color_by=quantity_of(color_by))
    with shown(browser, html, tmp_path, fragment="#view=rolled") as page:
        page.click("#close-all")
        node(page, "ManyAndOne").hover()
        row = page.locator("#card .row").filter(has_text=quantity_of(color_by).name)
        assert row.locator(".value").text_content() == text


def test_dark_as_the_system_says_or_as_the_button_does(
    browser: Browser, page_html: Pages, tmp_path: Path
) -> None:
    with shown(browser, page_html("resnet"), tmp_path) as page:
        light = ground(page)
        page.emulate_media(color_scheme="dark")
        page.wait_for_selector("html[data-theme=dark]", state="attached")
        assert ground(page) != light
        page.click("#theme")
        assert ground(page) == light
        page.reload()
        page.wait_for_selector("html[data-ready]", state="attached")
        assert theme(page) == "light"
        page.keyboard.press("d")
        assert theme(page) == "dark"


def luminance(color: str) -> float:
    parts = [int(part) / 255 for part in color[4:-1].split(",")[:3]]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_stand_out_from_what_is_behind_them(
    browser: Browser, page_html: Pages, tmp_path: Path, scheme: str
) -> None:
    read = """() => {
        const probe = document.createElement("div");
        document.body.append(probe);
        const rgb = (name) => { probe.style.color = `var(--${name})`; return getComputedStyle(probe).color; };
        const steps = [0, 1, 2, 3, 4, 5].map((n) => [rgb(`on-q${n}`), rgb(`q${n}`)]);
        const pairs = (ground) => [[rgb("ink"), rgb(ground)], [rgb("quiet"), rgb(ground)]];
        const rest = ["ground", "surface", "raised", "soft"].flatMap(pairs);
        return [...steps, ...rest, [rgb("accent"), rgb("raised")], [rgb("back"), rgb("surface")]];
    }"""
    with shown(browser, page_html("resnet"), tmp_path, color_scheme=scheme) as page:
        for ink, ground_color in page.evaluate(read):
            light, dark = sorted((luminance(ink), luminance(ground_color)), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (ink, ground_color)


def test_boxes_do_not_darken_one_another(browser: Browser, page_html: Pages, tmp_path: Path) -> None:
    with shown(browser, page_html("unet"), tmp_path) as page:
        page.click("#open-all")
        page.keyboard.press("0")
        settle(page)
        fills = page.locator("#world .node.open > .body").evaluate_all(
            "(bodies) => bodies.map((body) => getComputedStyle(body).fill)"
        )
        assert len(fills) == len(set(fills)) == 4  # as deep as it goes, each told from the one around it
        assert all(fill.startswith("color(srgb ") and "/" not in fill for fill in fills)  # opaque


def test_the_address_names_the_node_on_load_on_selection_and_on_back(
    browser: Browser, page_html: Pages, tmp_path: Path
) -> None:
    with shown(browser, page_html("recurrent"), tmp_path, fragment="#op=tanh_1:3") as page:
        assert selected(page) == "tanh_1:3"
        find(page, "tanh_1:4")
        assert fragment(page) == "#op=tanh_1:4"
        page.go_back()
        assert selected(page) == "tanh_1:3"
        page.go_forward()
        assert selected(page) == "tanh_1:4"
        page.evaluate("() => { location.hash = '#module=cell&view=rolled' }")
        page.wait_for_function(
            "() => document.querySelector('#world .selected')?.textContent.startsWith('cell')"
        )
        assert selected(page) == "cell"
        page.evaluate("() => { location.hash = '#op=nothing%20like%20it' }")
        page.wait_for_selector("#status.aloud")
        assert "nothing like it" in (page.locator("#status").text_content() or "")
        page.keyboard.press("Escape")
        assert page.locator("#status.aloud").count() == 0


def two_runs() -> str:
    """A scene as comparing gives it: one op added, one removed, the others with distances."""
    scene = build_scene(traced("unet")._views, rolled=False)
    for leaf in scene.leaves:
        leaf.mark = Mark("both", 0.0, "equal", equal=True)
    removed, added, apart = (
        next(leaf for leaf in scene.leaves if leaf.label == label) for label in ("relu_1", "mul_1", "cat_1")
    )
    removed.mark, added.mark = Mark("removed", None, ""), Mark("added", None, "")
    apart.mark = Mark("both", 0.5, "0.5 apart")
    for link in scene.links:
        link.status = (
            "added"
            if added in (link.source, link.target)
            else "removed"
            if removed in (link.source, link.target)
            else "both"
        )
    return page_of([scene], title="Two runs")


def test_two_runs_are_colored_by_difference_and_what_one_lacks_is_marked_and_listed(
    browser: Browser, tmp_path: Path
) -> None:
    with shown(browser, two_runs(), tmp_path, viewport={"width": 1500, "height": 4000}) as page:
        page.click("#open-all")
        page.keyboard.press("0")
        found = titles(page)
        assert "− relu_1" in found
        assert "+ mul_1" in found
        assert not page.locator("#views").is_visible()
        assert "removed" in (node(page, "− relu_1").get_attribute("class") or "")
        assert "filled q5" in (node(page, "cat_1").get_attribute("class") or "")
        assert page.locator("#world .edge.added").count() >= 2
        assert "only in the second run" in legend(page)
        page.click("#panel-button")
        text = page.locator("#details-body").inner_text()
        assert "Added: 1" in text or "ADDED: 1" in text
        page.locator("#details button.link").filter(has_text="relu_1").click()
        assert "Only in the first run" in page.locator("#details-body").inner_text()


class Chain(nn.Module):
    def __init__(self, *names: str) -> None:
        super().__init__()
        for name in names:
            self.add_module(name, nn.Sequential(nn.Linear(2, 2), nn.Tanh()))

    def forward(self, x: Tensor) -> Tensor:
        for inner in self.children():
            x = inner(x)
        return x


def test_what_two_runs_call_the_same_has_an_address_each(browser: Browser, tmp_path: Path) -> None:
    x = torch.randn(1, 2)
    a, b = tl.trace(Chain("first", "last"), x), tl.trace(Chain("first", "new", "last"), x)
    bundle = tl.Bundle({"a": a, "b": b})
    html = bundle.draw(tmp_path / "two.html").html
    for address, title in [("#op=linear_2", "last.0"), ("#op=linear_2&run=2", "+ new.0")]:
        with shown(browser, html, tmp_path, fragment=address) as page:
            assert selected(page) == title
            assert fragment(page) == address
