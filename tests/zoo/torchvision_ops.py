"""torchvision beside a torch for CPUs, where its compiled operators are missing."""

from __future__ import annotations

from importlib.util import find_spec
from inspect import unwrap

import torch
from torch import Tensor

NMS = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def import_torchvision() -> None:
    """Import torchvision if it is there; where its compiled operators do not fit, put plain ones in place."""
    if find_spec("torchvision") is None:
        return
    try:
        import torchvision
    except RuntimeError:
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", NMS)
        torch.library.impl("torchvision::nms", "cpu", greedy_nms)
        import torchvision
    if not torchvision.extension._has_ops():
        torchvision.ops.boxes._assert_has_ops = lambda: None
        roi_align = torchvision.ops.roi_align.__globals__
        roi_align["_roi_align"] = unwrap(roi_align["_roi_align"])  # without a compiler


def greedy_nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """The boxes that remain, best first, when each drops the worse ones that it overlaps."""
    area = (dets[:, 2] - dets[:, 0]) * (dets[:, 3] - dets[:, 1])
    remaining = scores.argsort(descending=True, stable=True)
    kept = []
    while remaining.numel():
        best, rest = remaining[0], remaining[1:]
        kept.append(best)
        corner = torch.maximum(dets[best, :2], dets[rest, :2])
        opposite = torch.minimum(dets[best, 2:], dets[rest, 2:])
        shared = (opposite - corner).clamp(min=0).prod(1)
        remaining = rest[shared <= iou_threshold * (area[best] + area[rest] - shared)]
    return torch.stack(kept) if kept else remaining
