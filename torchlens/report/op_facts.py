"""One op as plain data, its value in numbers included."""

from __future__ import annotations

from dataclasses import dataclass

from torchlens._records import Kind, SourceLine
from torchlens._trace.op import Op
from torchlens._values.geometry import dtype_name
from torchlens._values.tally import NoElementsError
from torchlens.errors import UnreadableError
from torchlens.report.sizes import shape_of
from torchlens.report.source_lines import source_line
from torchlens.report.statistics import Statistics, statistics_of


@dataclass(frozen=True, slots=True)
class OpFacts:
    """What is known about an op, without its value: numbers, text, and tuples of these."""

    label: str
    layer: str
    pass_number: int
    index: int
    kind: Kind
    type: str
    func_name: str
    shape: tuple[int, ...] | None
    """None for a nested tensor."""
    dtype: str
    device: str
    nbytes: int
    module: str
    """Address of the innermost module that was running; empty for the root."""
    module_call: str | None
    parents: tuple[str, ...]
    children: tuple[str, ...]
    params: tuple[str, ...]
    """Addresses."""
    buffers: tuple[str, ...]
    call_site: tuple[SourceLine, ...]
    """The outermost frame first; line 0 where it is not known."""
    flops: int | None
    flops_reason: str | None
    """Why FLOPs are not known."""
    duration_ns: int | None
    statistics: Statistics | None
    statistics_reason: str | None
    """Why there are no statistics."""


def op_facts(op: Op, *, statistics: bool = True) -> OpFacts:
    """Read an op and, for its statistics, all elements of its value."""
    numbers, reason = _statistics(op) if statistics else (None, "values were not read")
    return OpFacts(
        label=op.label,
        layer=op.layer.layer_label,
        pass_number=op.pass_number,
        index=op.index,
        kind=op.kind,
        type=op.type,
        func_name=op.func_name,
        shape=shape_of(op._seen),
        dtype=dtype_name(op.dtype),
        device=str(op.device),
        nbytes=op.nbytes,
        module=op.module.address,
        module_call=None if op.module_call is None else op.module_call.label,
        parents=tuple(parent.label for parent in op.parents),
        children=tuple(child.label for child in op.children),
        params=tuple(param.address for param in op.params),
        buffers=tuple(buffer.address for buffer in op.buffers),
        call_site=tuple(map(source_line, op.call_site)),
        flops=op.flops,
        flops_reason=op.flops_reason,
        duration_ns=op.duration_ns,
        statistics=numbers,
        statistics_reason=reason,
    )


def _statistics(op: Op) -> tuple[Statistics | None, str | None]:
    try:
        return statistics_of(op.out), None
    except (UnreadableError, NoElementsError) as error:
        return None, str(error)
