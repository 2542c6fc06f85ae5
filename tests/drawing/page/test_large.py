"""A page of 20,000 ops: its size, and that only what is near the window has elements."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from tests.drawing.page.opening import find, selected, settle, shown
from tests.drawing.page.shapes import Flat
from torchlens.drawing.one_run import build_scene
from torchlens.drawing.page import page_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.fc(self.norm(x))
        for _ in range(4):
            h = torch.tanh(h) * 0.5 + h.relu()
        return x + h.exp()


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(1000))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


MODELS: dict[str, Callable[[], nn.Module]] = {"flat": lambda: Flat(20_000), "blocks": Deep}


@pytest.mark.parametrize(("name", "label"), [("flat", "relu_1:2500"), ("blocks", "tanh_501:2")])
def test_twenty_thousand_ops(browser: Browser, tmp_path: Path, name: str, label: str) -> None:
    trace = tl.trace(MODELS[name](), torch.randn(1, 4))
    assert len(trace.ops) > 19_900
    html = page_of([build_scene(trace._views, rolled=False)], title="Large", statistics=False)
    assert len(html.encode()) < 8_000_000
    with shown(browser, html, tmp_path) as page:
        find(page, label)
        assert selected(page) == label
        page.keyboard.press("o")
        settle(page)
        assert selected(page) == label
        assert page.locator("#world > g").count() < 600
        page.keyboard.press("Escape")
        page.keyboard.press("0")
        settle(page)
        assert page.locator("#world > g").count() < 600
        page.keyboard.press("x")
        settle(page)
        assert page.locator("#world .node").count() == 3
