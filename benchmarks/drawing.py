"""How long pictures take beside the plain forward: made, and laid out; and how large a page is.

python benchmarks/drawing.py [--case resnet18 gpt2 tiny] [--repeats N] [--tiny-ops N]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

import torchlens as tl
from cases import CASES, Case, build
from timing import Samples, in_turn


def rows(case: Case, directory: Path) -> tuple[str, dict[str, Callable[[], object]]]:
    """What is drawn, in words, and the work to be measured."""
    with torch.no_grad():
        trace = tl.trace(case.model, case.inputs)
    page = directory / "model.html"
    trace.draw(page)

    def forward() -> object:
        with torch.no_grad():
            return case.model(case.inputs)

    words = f"{len(trace.ops):,} ops; a page of {page.stat().st_size / 1e6:,.2f} MB"
    return words, {
        "forward": forward,
        "trace.draw()": trace.draw,
        "trace.draw() and its SVG": lambda: trace.draw().svg,
        "rolled, and its SVG": lambda: trace.draw(rolled=True).svg,
        "a page": lambda: trace.draw(page),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--case", nargs="+", choices=list(CASES), default=["resnet18", "gpt2", "tiny"])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--tiny-ops", type=int, default=10_000)
    options = parser.parse_args()
    for name in options.case:
        with tempfile.TemporaryDirectory() as directory:
            case = build(name, options.tiny_ops)
            words, work = rows(case, Path(directory))
            found = in_turn(work, options.repeats)
        print(f"{case.title}: {words}")
        for row, samples in found.items():
            if isinstance(samples, Samples):
                print(f"  {row:28}{samples.median_ms:10.1f} ms")


if __name__ == "__main__":
    main()
