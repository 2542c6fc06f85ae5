"""What a trace holds: tensors by storage, and its own records."""

from __future__ import annotations

import gc
import tracemalloc
from dataclasses import dataclass
from typing import Any

import torch

import torchlens as tl
from cases import Case
from references import keep_outputs
from rows import trace_and_read


@dataclass
class Memory:
    value_bytes: int
    """Of all ops' outputs, each counted for itself: what a copy of every value would take."""
    kept_bytes: int
    """Of the distinct storages that a trace holds, parameters and inputs left out."""
    storage_bytes: int
    """Of the distinct storages that keeping every output of the run holds by itself."""
    copied_bytes: int | None
    """Saved before they were overwritten; None where the trace does not tell."""
    record_bytes_per_op: float
    """Python memory of a trace before it is read; no tensor data."""
    read_bytes_per_op: float
    """The same after every layer was read."""


def storages_in_use() -> dict[int, int]:
    """Address and size of the storage of every tensor that Python knows."""
    gc.collect()
    tensors = [thing for thing in gc.get_objects() if issubclass(type(thing), torch.Tensor)]
    storages = [tensor.untyped_storage() for tensor in tensors if tensor.layout == torch.strided]
    return {storage.data_ptr(): storage.nbytes() for storage in storages}


def bytes_above(before: dict[int, int]) -> int:
    return sum(size for address, size in storages_in_use().items() if address not in before)


def python_memory() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def record_bytes(case: Case) -> tuple[int, int]:
    """Before and after reading. Run after other traces, whose caches are then filled."""
    tracemalloc.start()
    try:
        before = python_memory()
        trace = tl.trace(case.model, case.inputs)
        recorded = python_memory() - before
        layers: list[Any] = [(layer.layer_label, layer.num_passes) for layer in trace.layers]
        read = python_memory() - before
        del layers
        return recorded, read
    finally:
        tracemalloc.stop()


def measure_memory(case: Case) -> Memory:
    trace_and_read(case)
    before = storages_in_use()
    outputs = keep_outputs(case)
    storage_bytes = bytes_above(before)
    del outputs

    before = storages_in_use()
    trace, _ = trace_and_read(case)
    kept_bytes = bytes_above(before)
    values = [op.nbytes for op in trace.ops if op.nbytes is not None]
    recorded, read = record_bytes(case)
    return Memory(
        value_bytes=sum(values),
        kept_bytes=kept_bytes,
        storage_bytes=storage_bytes,
        copied_bytes=trace.copied_bytes if hasattr(trace, "copied_bytes") else None,
        record_bytes_per_op=recorded / len(trace.ops),
        read_bytes_per_op=read / len(trace.ops),
    )
