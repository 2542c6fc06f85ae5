"""Whatever is opened: nothing lies over anything, all is inside its box, and edges end at their nodes."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.drawing.page.opening import settle, shown

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

# All that is drawn, in places of the picture; a part's parent is the innermost open node around it.
MEASURE = """() => {
    const place = (element) => {
        const [x, y] = element.getAttribute("transform").match(/-?[\\d.]+/g).map(Number);
        return [x, y];
    };
    const nodes = [...document.querySelectorAll("#world .node")].map((element) => {
        const [x, y] = place(element), body = element.querySelector(".body");
        const [width, height] = ["width", "height"].map((name) => Number(body.getAttribute(name)));
        return {part: Number(element.dataset.part), open: element.classList.contains("open"),
                x, y, right: x + width, bottom: y + height};
    });
    const edges = [...document.querySelectorAll("#world .edge")].map((element) => {
        const [x, y] = place(element), wire = element.querySelector(".wire"), length = wire.getTotalLength();
        const at = (where) => { const p = wire.getPointAtLength(where); return [x + p.x, y + p.y]; };
        const {inside, from, to} = element.dataset;
        return {inside: Number(inside), from: Number(from), to: Number(to),
                start: at(0), end: at(length),
                points: Array.from({length: 33}, (_, i) => at(length * i / 32))};
    });
    return {nodes, edges};
}"""
TIP = 8.5  # the line ends where its arrow's tip begins


def is_over(a: dict, b: dict) -> bool:
    return a["x"] < b["right"] and b["x"] < a["right"] and a["y"] < b["bottom"] and b["y"] < a["bottom"]


def is_within(a: dict, b: dict) -> bool:
    return a["x"] >= b["x"] and a["right"] <= b["right"] and a["y"] >= b["y"] and a["bottom"] <= b["bottom"]


def is_on_border(point: list[float], node: dict, slack: float) -> bool:
    """On the border, or up to `slack` outside it; an open node's inside begins at its header's lower side."""
    x, y = point
    beside = node["x"] - slack <= x <= node["right"] + slack
    level = node["y"] - slack <= y <= node["bottom"] + slack
    near_x = min(abs(x - node["x"]), abs(x - node["right"])) <= slack
    lines = [node["y"], node["bottom"]] + ([node["y"] + 30] if node["open"] else [])
    near_y = min(abs(y - line) for line in lines) <= slack
    return beside and level and (near_x or near_y)


def complaints(found: dict) -> list[str]:
    nodes, by_part = found["nodes"], {node["part"]: node for node in found["nodes"]}
    lines = []
    for at, a in enumerate(nodes):
        for b in nodes[at + 1 :]:
            if is_over(a, b) and not (a["open"] and is_within(b, a)) and not (b["open"] and is_within(a, b)):
                lines.append(f"{a['part']} lies over {b['part']}")
    for edge in found["edges"]:
        for end, part in (("start", edge["from"]), ("end", edge["to"])):
            if part in by_part and not is_on_border(edge[end], by_part[part], TIP):
                lines.append(f"the edge {edge['from']} -> {edge['to']} misses {part} at {edge[end]}")
        box = by_part.get(edge["inside"])
        if box is not None and not all(
            box["x"] <= x <= box["right"] and box["y"] - 1 <= y <= box["bottom"] + 1
            for x, y in edge["points"]
        ):
            lines.append(f"the edge {edge['from']} -> {edge['to']} leaves {edge['inside']}")
    return lines


def crossings(found: dict) -> list[str]:
    """Edges that run over closed nodes which they do not end at."""
    closed = [node for node in found["nodes"] if not node["open"]]
    return [
        f"{edge['from']} -> {edge['to']} runs over {node['part']}"
        for edge in found["edges"]
        for node in closed
        if node["part"] not in (edge["from"], edge["to"])
        and any(
            node["x"] + 3 < x < node["right"] - 3 and node["y"] + 3 < y < node["bottom"] - 3
            for x, y in edge["points"]
        )
    ]


def open_at_random(page: Page, chance: random.Random) -> None:
    toggles = page.locator("#world .node .toggle")
    if toggles.count():
        toggles.nth(chance.randrange(toggles.count())).dispatch_event("click", {"bubbles": True})
    settle(page)
    page.keyboard.press("0")
    settle(page)


@pytest.mark.parametrize("view", ["", "#view=rolled"], ids=["unrolled", "rolled"])
@pytest.mark.parametrize("name", ["resnet", "unet", "recurrent", "over_time", "three_groups"])
def test_nothing_overlaps_and_edges_end_at_nodes(
    browser: Browser, page_html: Callable[[str], str], tmp_path: Path, name: str, view: str
) -> None:
    chance = random.Random(f"{name}{view}")
    size = {"width": 3000, "height": 3000}
    seen: set[tuple[int, ...]] = set()
    with shown(browser, page_html(name), tmp_path, fragment=view, viewport=size) as page:
        for step in range(6):
            found = page.evaluate(MEASURE)
            seen.add(tuple(node["part"] for node in found["nodes"] if node["open"]))
            assert found["nodes"]
            assert found["edges"]
            assert complaints(found) == [], f"after {step} steps"
            assert crossings(found) == [], f"after {step} steps"
            if step == 3:
                page.keyboard.press("o")
                page.keyboard.press("0")
                settle(page)
            else:
                open_at_random(page, chance)
    assert len(seen) > 1


def test_a_node_over_another_and_an_edge_beside_its_node_are_found() -> None:
    low = {"part": 1, "open": False, "x": 0, "y": 0, "right": 10, "bottom": 10}
    over = low | {"part": 2, "x": 5}
    edge = {"inside": 1, "from": 1, "to": 2, "start": [0, 40], "end": [7, 0], "points": [[9, 50]]}
    assert complaints({"nodes": [low, over], "edges": [edge]}) == [
        "1 lies over 2",
        "the edge 1 -> 2 misses 1 at [0, 40]",
        "the edge 1 -> 2 leaves 1",
    ]
    edge["points"] = [[9, 5]]
    assert crossings({"nodes": [low | {"part": 3, "right": 20}], "edges": [edge]}) == ["1 -> 2 runs over 3"]
