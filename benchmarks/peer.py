"""What the scripts for other interpreters share: the same work there, timed in turn, printed as JSON."""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version

import torch

from cases import Case, build
from references import PLAIN
from timing import Samples, Work, in_turn


def run_peer(package: str, rows_of: Callable[[Case], dict[str, Work | str]]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", required=True)
    parser.add_argument("--repeats", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--tiny-ops", type=int, required=True)
    parser.add_argument("--no-grad", action="store_true")
    options = parser.parse_args()

    warnings.simplefilter("ignore")
    torch.set_num_threads(options.threads)
    found = {"package": package, "version": version(package)}
    try:
        case = build(options.case, options.tiny_ops)
    except ModuleNotFoundError as error:
        print(json.dumps({**found, "rows": {PLAIN: f"not available: {error}"}}))
        return
    with torch.set_grad_enabled(not options.no_grad):
        rows = in_turn({PLAIN: case.forward, **rows_of(case)}, options.repeats)
    data = {name: asdict(row) if isinstance(row, Samples) else row for name, row in rows.items()}
    print(json.dumps({**found, "rows": data}))
