"""What a failed test shows of a trace: how it ended, its last ops, the first value that is not finite."""

from __future__ import annotations

from collections.abc import Iterator

from torchlens._api.trace import Trace
from torchlens._trace.op import Op
from torchlens.errors import TorchLensError, TraceAssertionError
from torchlens.report.amounts import listed
from torchlens.report.sizes import look_text
from torchlens.testing.finite import assert_finite
from torchlens.testing.given import refuse_others


def last_ops(trace: Trace, most: int = 8) -> str:
    """A trace in few lines, for whoever reads a failed test: how it ended, and the ops it came to last.

    Of a run that failed this is the page of its failure, which has ops of its own: `most` is of no account.

    >>> import torch, torchlens as tl
    >>> print(last_ops(tl.trace(torch.relu, torch.ones(2)), most=1).splitlines()[-1])
      output_1:1  2 float32, from relu_1:1
    """
    refuse_others(trace)
    try:
        return "\n".join([*_lines(trace, most), *_not_finite(trace)])
    except TorchLensError as error:  # as of a block that never began, or a trace that was freed
        return f"{trace!r}: {error}"


def _lines(trace: Trace, most: int) -> Iterator[str]:
    yield repr(trace)
    if trace._reader.record.failure is not None:  # the page of a failed run has its last ops
        return
    count = len(trace.ops)
    yield ""
    yield f"the last {min(most, count)} of {count} ops:" if count else "no op ran"
    yield from map(_line, trace.ops[max(0, count - most) :])


def _line(op: Op) -> str:
    parents = [parent.label for parent in op.parents]
    text = f"  {op.label}  {look_text(op._seen)}"
    text += f", from {listed(parents)}" if parents else ""
    return text + (f", at {op.call_site[-1]}" if op.call_site else "")


def _not_finite(trace: Trace) -> Iterator[str]:
    try:
        assert_finite(trace)
    except TraceAssertionError as error:
        yield ""
        yield str(error).partition("\n")[0]
