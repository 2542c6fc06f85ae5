"""How long aligning and comparing two traces takes, beside the plain forward.

python benchmarks/comparing.py [--case resnet18 gpt2 tiny] [--repeats N] [--tiny-ops N]
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable

import torch

import torchlens as tl
from cases import CASES, Case, build
from timing import Samples, in_turn
from torchlens.comparing.alignment import align


def run(case: Case, *, changed: bool) -> tl.Trace:
    """A trace of the case; with every parameter and input moved a little, so that no value is the same."""
    model, x = copy.deepcopy(case.model), case.inputs
    if changed:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.001)
        x = x * 1.001 if x.is_floating_point() else x
    with torch.no_grad():
        return tl.trace(model, x)


def rows(case: Case) -> dict[str, Callable[[], object]]:
    """The work to be measured; traces are read once before, as they are when their labels are."""
    one, same, other = run(case, changed=False), run(case, changed=False), run(case, changed=True)
    bundle = tl.Bundle({"one": one, "same": same, "other": other})
    bundle.compare("one", "other")

    def forward() -> object:
        with torch.no_grad():
            return case.forward()

    return {
        "forward": forward,
        "align": lambda: align(one._views, same._views),
        "compare, equal": lambda: bundle.compare("one", "same"),
        "compare, all differ": lambda: bundle.compare("one", "other"),
        "first_divergence, none": lambda: bundle.first_divergence("one", "same"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--case", nargs="+", choices=list(CASES), default=["resnet18", "gpt2", "tiny"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tiny-ops", type=int, default=10_000)
    options = parser.parse_args()
    for name in options.case:
        case = build(name, options.tiny_ops)
        found = in_turn(rows(case), options.repeats)
        print(f"{case.title}: {len(run(case, changed=False).ops):,} ops")
        for row, samples in found.items():
            if isinstance(samples, Samples):
                print(f"  {row:24}{samples.median_ms:10.1f} ms")


if __name__ == "__main__":
    main()
