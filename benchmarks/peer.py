"""The same work by a released torchlens, run by overhead.py under another interpreter; prints JSON."""

from __future__ import annotations

import argparse
import json
import warnings
from importlib.metadata import version
from typing import Any

import torch

import torchlens
from cases import Case, build
from timing import in_turn


def full_trace(case: Case) -> Any:
    trace = torchlens.trace(case.model, case.inputs)
    labels = [(layer.layer_label, layer.num_passes) for layer in trace.layers]
    return trace, labels


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", required=True)
    parser.add_argument("--repeats", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--tiny-ops", type=int, required=True)
    parser.add_argument("--no-grad", action="store_true")
    options = parser.parse_args()

    warnings.simplefilter("ignore")
    torch.set_num_threads(options.threads)
    case = build(options.case, options.tiny_ops)
    with torch.set_grad_enabled(not options.no_grad):
        samples = in_turn({"plain": case.forward, "trace": lambda: full_trace(case)}, options.repeats)
    result: dict[str, Any] = {name: vars(of_row) for name, of_row in samples.items()}
    print(json.dumps({"version": version("torchlens"), **result}))


if __name__ == "__main__":
    main()
