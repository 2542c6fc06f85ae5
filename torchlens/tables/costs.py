"""Time and FLOPs, of ops and of layers."""

from __future__ import annotations

from collections.abc import Sequence

from torchlens._arrow import Cells, coded
from torchlens.flops.cost import Cost
from torchlens.tables.schema import LARGEST


def cost_cells(costs: Sequence[Cost]) -> dict[str, Cells]:
    """The columns `flops`, `macs` and `flops_reason`."""
    stored = [_storable(cost) if cost.flops is not None and cost.flops > LARGEST else cost for cost in costs]
    return {
        "flops": [cost.flops for cost in stored],
        "macs": [cost.macs for cost in stored],
        "flops_reason": coded(cost.reason for cost in stored),
    }


def total(costs: Sequence[Cost]) -> Cost:
    """The sum; not known, for the first reason, where one of the costs is not."""
    unknown = next((cost for cost in costs if cost.flops is None), None)
    if unknown is not None:
        return unknown
    return Cost(sum(cost.flops or 0 for cost in costs), sum(cost.macs or 0 for cost in costs), None)


def total_duration(durations: Sequence[int | None]) -> int | None:
    """The sum of those that were taken; None where none was."""
    taken = [duration for duration in durations if duration is not None]
    return sum(taken) if taken else None


def _storable(cost: Cost) -> Cost:
    """Tensors without elements can be of any size."""
    return Cost(None, None, f"Its {cost.flops:,} FLOPs are more than a column of 64 bits holds.")
