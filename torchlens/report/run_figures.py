"""What a run amounts to, as plain data: for programs, where a summary is for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torchlens._records import Failure, Status
from torchlens._trace.provenance import find_provenance
from torchlens._trace.reader import TraceReader
from torchlens._values.geometry import dtype_name
from torchlens.report.memory import held_storages
from torchlens.report.sizes import numel, shape_of


class HasReader(Protocol):
    """A trace."""

    @property
    def _reader(self) -> TraceReader: ...


@dataclass(frozen=True, slots=True)
class EndFigures:
    """An input or output of the model."""

    label: str
    shape: tuple[int, ...] | None
    """None for a nested tensor."""
    dtype: str
    device: str


@dataclass(frozen=True, slots=True)
class RunFigures:
    """What a run amounts to: numbers, text, and tuples of these."""

    model: str
    """The class or function."""
    status: Status
    error: Failure | None
    inputs: tuple[EndFigures, ...]
    outputs: tuple[EndFigures, ...]
    ops: int
    layers: int
    modules: int
    """Of the model, called or not."""
    module_calls: int
    parameters: int
    """Elements of parameters, ties once; without those that are not initialised."""
    trainable_parameters: int
    buffers: int
    """How many there are."""
    flops: int
    macs: int
    calls_without_flops: int
    """Calls of which the FLOPs are not known: none of the sums has them."""
    duration_ns: int
    """Of the torch calls alone, on the host."""
    value_bytes: int
    """Bytes of the distinct storages in which the kept values lie."""
    copied_bytes: int
    """Bytes saved before in-place writes."""
    verified: bool
    verification_reason: str | None
    notes: tuple[str, ...]
    seed: int | None
    torch_version: str
    python_version: str


def figures(trace: HasReader) -> RunFigures:
    """Count what a run amounts to.

    >>> import torch, torchlens as tl
    >>> trace = tl.trace(torch.nn.Linear(3, 2), torch.ones(1, 3))
    >>> tl.report.figures(trace).flops
    12
    """
    reader = trace._reader
    record = reader.record
    costs = [reader.cost(row) for row in range(len(reader.rows))]
    sizes = [(numel(entry.tensor) or 0, entry.tensor.requires_grad) for entry in record.params]
    provenance = find_provenance(reader)
    return RunFigures(
        model=record.modules[0].type_name,
        status=record.status,
        error=record.failure,
        inputs=_ends(reader, record.inputs),
        outputs=_ends(reader, record.outputs),
        ops=len(reader.numbers.rows),
        layers=len(reader.layering.layers),
        modules=len(record.modules),
        module_calls=len(record.module_calls) - 1,
        parameters=sum(size for size, _ in sizes),
        trainable_parameters=sum(size for size, trainable in sizes if trainable),
        buffers=len(record.buffers),
        flops=sum(cost.flops or 0 for cost in costs),
        macs=sum(cost.macs or 0 for cost in costs),
        calls_without_flops=sum(cost.flops is None for cost in costs),
        duration_ns=sum(reader.rows.duration),
        value_bytes=sum(nbytes for _, nbytes in held_storages(reader).values()),
        copied_bytes=reader.values.copied_bytes,
        verified=provenance.verified,
        verification_reason=provenance.verification_reason,
        notes=tuple(record.notes),
        seed=record.options.seed,
        torch_version=record.options.torch_version,
        python_version=record.options.python_version,
    )


def _ends(reader: TraceReader, rows: Sequence[int]) -> tuple[EndFigures, ...]:
    found: list[EndFigures] = []
    for row in rows:
        seen = reader.values.geometry(reader.tensor(row, 0), row, after=True)
        label = reader.op_labels[reader.numbers.first[row]]
        dtype = dtype_name(seen.dtype)
        found.append(EndFigures(label, shape_of(seen), dtype, str(reader.values.device(seen))))
    return tuple(found)
