"""How long saving and loading a trace takes beside the plain forward, and what the file takes.

python benchmarks/saving.py [--case resnet18 gpt2 tiny] [--repeats N] [--tiny-ops N] [--batch N]
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

import torchlens as tl
from cases import CASES, Case, build
from timing import Samples, in_turn


def rows(case: Case, batch: int, directory: Path) -> tuple[str, dict[str, Callable[[], object]]]:
    """What was saved, in words, and the work to be measured."""
    x = case.inputs.repeat(batch, *[1] * (case.inputs.dim() - 1)) if batch > 1 else case.inputs
    with torch.no_grad():
        trace = tl.trace(case.model, x)
    path = directory / "run.tlens"
    tl.save(trace, path)
    numbers = itertools.count()

    def forward() -> object:
        with torch.no_grad():
            return case.model(x)

    def read_all() -> None:
        for op in tl.load(path).ops:
            _ = op.out

    words = f"{len(trace.ops):,} ops, {path.stat().st_size / 1e6:,.1f} MB"
    return words, {
        "forward": forward,
        "tl.save": lambda: tl.save(trace, directory / f"{next(numbers)}.tlens"),
        "tl.load": lambda: tl.load(path),
        "tl.load, and every value": read_all,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--case", nargs="+", choices=list(CASES), default=["resnet18", "gpt2", "tiny"])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--tiny-ops", type=int, default=10_000)
    parser.add_argument("--batch", type=int, default=1, help="how often the input is repeated")
    options = parser.parse_args()
    for name in options.case:
        with tempfile.TemporaryDirectory() as directory:
            case = build(name, options.tiny_ops)
            words, work = rows(case, options.batch, Path(directory))
            found = in_turn(work, options.repeats)
        print(f"{case.title}: {words}")
        for row, samples in found.items():
            if isinstance(samples, Samples):
                print(f"  {row:28}{samples.median_ms:10.1f} ms")


if __name__ == "__main__":
    main()
