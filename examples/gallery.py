"""Draws the pictures of docs/gallery.md and writes that page: python examples/gallery.py docs

Needs torchvision and transformers (`pip install ".[zoo]"` in a clone). The weights are random: nothing is
downloaded.
"""

import copy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

import torchlens as tl

try:
    import torchvision
except RuntimeError:  # a torchvision built for GPUs beside a torch for CPUs: these two operators are missing
    for name in ("nms", "qnms"):
        torch.library.define(
            f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        )
    import torchvision
import transformers


class Reader(nn.Module):
    """Steps an LSTM cell through time and reads each state out."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(8, 16)
        self.readout = nn.Linear(16, 4)

    def forward(self, words: Tensor) -> Tensor:
        hidden = cell = words.new_zeros(words.shape[0], 16)
        scores = []
        for step in range(words.shape[1]):
            hidden, cell = self.cell(words[:, step], (hidden, cell))
            scores.append(self.readout(hidden))
        return torch.stack(scores, dim=1)


class TwoConvolutions(nn.Sequential):
    """What a U-Net does at each of its scales."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__(
            nn.Conv2d(inside, outside, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(outside, outside, 3, padding=1),
            nn.ReLU(),
        )


class UNet(nn.Module):
    """Goes down to smaller images and up again; each scale is carried over to the way up."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.down = nn.ModuleList(TwoConvolutions(*sizes) for sizes in ((3, width), (width, 2 * width)))
        self.bottom = TwoConvolutions(2 * width, 4 * width)
        self.up = nn.ModuleList(
            TwoConvolutions(*sizes) for sizes in ((6 * width, 2 * width), (3 * width, width))
        )
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, image: Tensor) -> Tensor:
        skipped = []
        for stage in self.down:
            image = stage(image)
            skipped.append(image)
            image = nn.functional.max_pool2d(image, 2)
        image = self.bottom(image)
        for stage in self.up:
            image = nn.functional.interpolate(image, scale_factor=2)
            image = stage(torch.cat([image, skipped.pop()], dim=1))
        return self.head(image)


class Shown(NamedTuple):
    """One picture of the page."""

    name: str
    heading: str
    text: str
    code: str
    draw: Callable[[Path], object]


def pictures() -> Iterator[Shown]:
    """The pictures of the page, in its order."""
    yield from pictures_of_loops(tl.trace(Reader(), torch.randn(1, 4, 8)))
    yield from pictures_of_resnets(torchvision.models.resnet18().eval())
    gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config()).eval()
    trace = tl.trace(gpt2, torch.arange(16)[None])
    views = [tl.func(name) for name in ("view", "reshape", "transpose", "contiguous")]
    yield Shown(
        "gpt2",
        "GPT-2: twelve blocks as one",
        "The twelve blocks are built alike, so they are drawn once, ×12; dashed arrows lead to the next.",
        'trace.draw("gpt2.png", depth=3)',
        lambda path: trace.draw(path, depth=3),
    )
    yield Shown(
        "gpt2_attention",
        "One module with its surroundings",
        "`focus=` draws a module and what it is linked to; `hide=` leaves ops out, here views.",
        'trace.draw("attention.png", focus="transformer.h.3.attn", hide=views)  # tl.func("view") | ...',
        lambda path: trace.draw(path, focus="transformer.h.3.attn", hide=views),
    )
    swin = tl.trace(torchvision.models.swin_t().eval(), torch.randn(1, 3, 64, 64))
    yield Shown(
        "swin",
        "Swin: what is too large is closed",
        "580 ops: without options the picture is opened as deep as about 60 nodes allow, and says so below.",
        'trace.draw("swin.png")',
        swin.draw,
    )
    unet = tl.trace(UNet(), torch.randn(1, 3, 32, 32))
    yield Shown(
        "unet",
        "A U-Net",
        "What each scale of the way down gave goes to the way up. `collapse=` closes modules.",
        'trace.draw("unet.png", collapse="TwoConvolutions")',
        lambda path: unet.draw(path, collapse="TwoConvolutions"),
    )
    yield difference()


def pictures_of_loops(trace: tl.Trace) -> Iterator[Shown]:
    """Every pass, and the layers with what leads back."""
    yield Shown(
        "loop",
        "A loop, every pass",
        "An LSTM cell runs four times; each call is a box of its own, `cell:1` to `cell:4`.",
        'trace.draw("loop.png")',
        trace.draw,
    )
    yield Shown(
        "loop_rolled",
        "The same loop, rolled",
        "Each layer once, with the number of its passes. Dashed arrows lead back to the next pass.",
        'trace.draw("loop.png", rolled=True)',
        lambda path: trace.draw(path, rolled=True),
    )


def pictures_of_resnets(model: nn.Module) -> Iterator[Shown]:
    """A model that is closed by itself, and where its FLOPs are."""
    trace = tl.trace(model, torch.randn(1, 3, 224, 224))
    yield Shown(
        "resnet18",
        "ResNet-18",
        "Without options: opened as deep as stays readable.",
        'trace.draw("resnet18.png")',
        trace.draw,
    )
    yield Shown(
        "resnet18_flops",
        "Where the FLOPs are",
        '`color_by=` takes "time", "flops", "bytes", or any function of an op.',
        'trace.draw("flops.png", focus="layer2", color_by="flops")',
        lambda path: trace.draw(path, focus="layer2", color_by="flops"),
    )


def difference() -> Shown:
    """Two runs in one picture."""
    before = nn.Sequential(*(TwoConvolutions(3, 3) for _ in range(2))).eval()
    after = copy.deepcopy(before)
    after[1][1] = nn.GELU()
    after.append(nn.Dropout())
    image = torch.randn(1, 3, 8, 8)
    bundle = tl.Bundle({"before": tl.trace(before, image), "after": tl.trace(after.eval(), image)})
    return Shown(
        "difference",
        "Two runs in one",
        "What is only in one run is marked, what is in both is colored by how far its values are apart.",
        'tl.Bundle({"before": one, "after": other}).draw("difference.png")',
        bundle.draw,
    )


PAGE = """# Gallery

Pictures that `trace.draw` makes. `python examples/gallery.py docs` writes them and this page;
[that file](../examples/gallery.py) has the models. What the options mean is in [drawing.md](drawing.md); a
path that ends in `.html` gives an interactive page instead.
"""


def main(folder: Path) -> None:
    torch.manual_seed(0)
    page = PAGE
    for shown in pictures():
        shown.draw(folder / "gallery" / f"{shown.name}.png")
        page += (
            f"\n## {shown.heading}\n\n{shown.text}\n\n"
            f"    {shown.code}\n\n"
            f"![{shown.heading}](gallery/{shown.name}.png)\n"
        )
        print(f"gallery/{shown.name}.png")
    (folder / "gallery.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
