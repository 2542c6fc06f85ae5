"""How large the interactive page of 20,000 ops is, and how long it takes to make, to open and to use.

Needs Chromium. Run as `python benchmarks/page.py`.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

import torchlens as tl
from tests.browser import chromium
from tests.drawing.page.shapes import Flat
from tests.drawing.page.test_large import Deep
from torchlens.drawing.one_run import build_scene
from torchlens.drawing.page import page_of

MODELS = {"flat, 20,000 ops": lambda: Flat(20_000), "1,000 blocks of 20 ops": Deep}
# What a person does first, each until it is drawn; milliseconds since the page was asked for, or of the step.
USE = """async (label) => {
    const drawn = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    const step = async (action) => {
        const start = performance.now();
        action();
        await drawn();
        return performance.now() - start;
    };
    const field = document.getElementById("search");
    const type = () => { field.value = label; field.dispatchEvent(new Event("input")); };
    const press = (key, target = document.body) =>
        target.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
    const opened = performance.now();
    const search = await step(type), go = await step(() => press("Enter", field));
    const ready = performance.now();
    await step(() => press("Backspace"));
    const close = await step(() => press("Enter")), open = await step(() => press("Enter"));
    const all = await step(() => press("o")), fit = await step(() => { press("Escape"); press("0"); });
    return {opened, ready, search, go, close, open, all, fit, rolled: await step(() => press("r"))};
}"""


def made(name: str) -> tuple[str, dict[str, float]]:
    """The page of a model, and the seconds that its parts took."""
    torch.manual_seed(0)
    trace = tl.trace(MODELS[name](), torch.randn(1, 4))
    times = {}
    start = time.perf_counter()
    scenes = [build_scene(trace._views, rolled=rolled) for rolled in (False, True)]
    times["scenes"] = time.perf_counter() - start
    for key, statistics in (("page without statistics", False), ("page", True)):
        start = time.perf_counter()
        html = page_of(scenes, title=name, statistics=statistics)
        times[key] = time.perf_counter() - start
    return html, times


def used(html: str, label: str) -> dict[str, float]:
    """Milliseconds of what a person does in the page."""
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        file = Path(folder) / "page.html"
        file.write_text(html, encoding="utf-8")
        page = browser.new_page(viewport={"width": 1300, "height": 850})
        page.goto(file.as_uri())
        page.wait_for_selector("html[data-ready]", state="attached")
        return page.evaluate(USE, label)


def main() -> None:
    for name, label in zip(MODELS, ("relu_1:2500", "tanh_501:2")):
        html, times = made(name)
        print(f"{name}: {len(html.encode()) / 1e6:.1f} MB")
        print("  made, s:", ", ".join(f"{key} {value:.1f}" for key, value in times.items()))
        print("  used, ms:", ", ".join(f"{key} {value:.0f}" for key, value in used(html, label).items()))


if __name__ == "__main__":
    main()
