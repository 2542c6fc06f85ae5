"""The release, torchlens 2.36.1, run by overhead.py under another interpreter. Its recordings are not read.

PATH benchmarks/peer_torchlens.py --case resnet18 --repeats 3 --threads 2 --tiny-ops 500
"""

from __future__ import annotations

from typing import Any

import torchlens
from cases import Case
from peer import run_peer
from timing import Work


def keep_nothing(_: Any) -> bool:
    return False


def rows_of(case: Case) -> dict[str, Work | str]:
    model, inputs = case.model, case.inputs

    def trace(**options: Any) -> Any:
        found = torchlens.trace(model, inputs, **options)
        return found, [(layer.layer_label, layer.num_passes) for layer in found.layers]

    def ends_quarter(event: Any) -> bool:
        return event.kind == "module_exit" and event.address == case.quarter

    return {
        "trace": trace,
        "trace, one module kept": lambda: trace(save=torchlens.module(case.middle)),
        "record, nothing kept": lambda: torchlens.record(model, inputs, save=keep_nothing),
        "record, one module kept": lambda: torchlens.record(
            model, inputs, save=torchlens.module(case.middle)
        ),
        "record, nothing kept, to 1/4": lambda: torchlens.record(
            model, inputs, save=keep_nothing, halt=ends_quarter
        ),
    }


if __name__ == "__main__":
    run_peer("torchlens", rows_of)
