"""nnsight, run by overhead.py under another interpreter. Wrapping the model is not on the clock.

PATH benchmarks/peer_nnsight.py --case resnet18 --repeats 3 --threads 2 --tiny-ops 500
"""

from __future__ import annotations

from typing import Any

from nnsight import NNsight

from cases import Case
from peer import run_peer
from timing import Work


def rows_of(case: Case) -> dict[str, Work | str]:
    model, inputs = NNsight(case.model), case.inputs
    middle, quarter = model.get(case.middle), model.get(case.quarter)

    def one_module() -> Any:
        with model.trace(inputs):
            kept = middle.output.save()
        return kept  # noqa: RET504  # what the block binds leaves it, a return does not

    def every_module() -> Any:
        with model.trace(inputs) as tracer:
            kept = tracer.cache()
        return kept  # noqa: RET504  # as above

    def until_quarter() -> Any:
        with model.trace(inputs) as tracer:
            kept = quarter.output.save()
            tracer.stop()
        return kept

    return {
        "every module kept": every_module,
        "one module kept": one_module,
        "one module kept, to 1/4": until_quarter,
    }


if __name__ == "__main__":
    run_peer("nnsight", rows_of)
