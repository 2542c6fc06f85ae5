"""Whether every value is finite, and which op made the first that is not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from torchlens._api.trace import Trace
from torchlens._trace.op import Op
from torchlens._trace.reader import TraceReader
from torchlens._trace.reference import TensorRef, references_in
from torchlens._unseen import unseen
from torchlens.errors import TraceAssertionError, UnreadableError
from torchlens.report.amounts import listed, quantity
from torchlens.report.sizes import look_text
from torchlens.selectors import Sites
from torchlens.testing.description import value_of
from torchlens.testing.given import reader_of
from torchlens.testing.unfilled import find_unfilled
from torchlens.validation.comparison import parts_of


@dataclass(slots=True)
class Finite:
    """How many ops were found finite, and how many were not looked at."""

    checked: int = 0
    allowed: int = 0
    """Left out by `allow`, or holding memory that nothing has written yet."""
    unread: list[str] = field(default_factory=list[str])
    """Labels of the ops whose value is not kept, was overwritten, or lies on `meta`."""

    def __str__(self) -> str:
        text = f"{quantity(self.checked, 'op')} looked at and finite"
        if self.allowed:
            text += f", {self.allowed} left out"
        if self.unread:
            text += f", {len(self.unread)} not looked at, their values being gone: {listed(self.unread)}"
        return text


def assert_finite(trace: Trace, *, allow: Sites | None = None, inf: bool = False) -> Finite:
    """Raise `TraceAssertionError`, naming the first op with a NaN or infinity and its inputs.

    An op makes such a value if what it read was finite. `allow` names ops that may have some, as a mask of
    `-inf`; `inf=True` allows infinities everywhere. Ops whose value is not kept are counted in what is
    returned, and it is a failure if there are no others. What `torch.empty` gave and nothing has filled is
    left out.

    >>> import torch, torchlens as tl
    >>> print(assert_finite(tl.trace(torch.nn.ReLU(), torch.ones(2))))
    3 ops looked at and finite
    """
    __tracebackhide__ = True
    reader = reader_of(trace)
    allowed = frozenset[int]() if allow is None else frozenset(op.index for op in trace.select(allow))
    tally = Finite()
    with unseen():
        first = _find_first(reader, allowed | find_unfilled(reader), inf, tally)
        complaint = None if first is None else _complaint(trace.ops[first], inf, tally)
    if complaint is not None:
        raise TraceAssertionError(complaint)
    if not tally.checked and tally.unread:
        raise TraceAssertionError(f"nothing of the trace could be looked at: {tally}")
    return tally


def _find_first(reader: TraceReader, allowed: frozenset[int], inf: bool, tally: Finite) -> int | None:
    """The first op in capture order with a value that is not finite; counts those before it."""
    for op, label in enumerate(reader.op_labels):
        if op in allowed:
            tally.allowed += 1
            continue
        value = value_of(reader, op)
        if value is None:
            tally.unread.append(label)
        elif _strange(value, inf) is None:
            tally.checked += 1
        else:
            return op
    return None


def _strange(value: Tensor, inf: bool) -> str | None:
    """What of a value is not finite, in words; None if nothing."""
    parts = [part for part in parts_of(value.detach()) if part.is_floating_point() or part.is_complex()]
    parts = [part.double() if part.is_floating_point() and part.itemsize == 1 else part for part in parts]
    if all(part.isfinite().all() for part in parts):
        return None
    nan = sum(int(part.isnan().sum()) for part in parts)
    infinite = 0 if inf else sum(int(part.isinf().sum()) for part in parts)
    counts = [f"{count} {name}" for count, name in ((nan, "NaN"), (infinite, "inf")) if count]
    size = sum(part.numel() for part in parts)
    return f"{' and '.join(counts)} among {quantity(size, 'element')}" if counts else None


@dataclass(frozen=True, slots=True)
class _Input:
    """What an op read: by label or address, how finite it was, and whether that is what is looked for."""

    name: str
    text: str
    is_strange: bool | None
    """None where the value can't be read."""

    @classmethod
    def of(cls, name: str, value: Tensor | None, inf: bool) -> _Input:
        if value is None or value.is_meta:
            return cls(name, "its value can not be read", None)
        return cls(name, _strange(value, inf=False) or "finite", _strange(value, inf) is not None)


def _complaint(op: Op, inf: bool, tally: Finite) -> str:
    inputs = _inputs(op, inf)
    has = "has NaN" if inf else "is not finite"
    if op.kind in ("input", "source") or (op.kind == "buffer" and not inputs):
        text = f"{op.label}, where the data comes from, {has}"
    elif any(read.is_strange for read in inputs):
        text = f"{op.label} {has}, and what it read was so already"
    elif any(read.is_strange is None for read in inputs):
        text = f"{op.label} {has}, and not all that it read is known"
    elif inf:
        text = f"{op.label} makes NaN from inputs without any"
    else:
        text = f"{op.label} makes what is not finite from finite inputs"
    hint = "allow= leaves ops out, by label, address or selector; inf=True allows infinities"
    lines = [f"{text}: {_strange(op.out, inf)}", "", *_details(op, inputs), "", f"before it: {tally}", hint]
    return "\n".join(lines)


def _details(op: Op, inputs: Sequence[_Input]) -> Iterator[str]:
    where = op.module.address
    place = f", in {where}" if where else ""
    yield f"  {op.label}  {op.func_name}, {look_text(op._seen)}{place}"
    if op.call_site:
        yield f"    called at {op.call_site[-1]}"
    for read in inputs:
        yield f"    reads {read.name}: {read.text}"


def _inputs(op: Op, inf: bool) -> list[_Input]:
    """What an op read, with the values it had then, each once; what came through the host comes last."""
    found: dict[str, _Input] = {}
    for reference in references_in([*op.args, *op.kwargs.values()]):
        found.setdefault(reference.label, _Input.of(reference.label, _read(reference), inf))
    for parent in op.parents:
        found.setdefault(parent.label, _Input.of(parent.label, value_of(op._reader, parent.index), inf))
    return list(found.values())


def _read(reference: TensorRef) -> Tensor | None:
    try:
        return reference.out
    except UnreadableError:
        return None
