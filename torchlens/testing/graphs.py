"""Whether two traces have one graph."""

from __future__ import annotations

from torchlens._api.trace import Trace
from torchlens.errors import TraceAssertionError
from torchlens.testing.description import describe
from torchlens.testing.differences import as_text, find_differences
from torchlens.testing.given import reader_of


def assert_same_graph(expected: Trace, found: Trace) -> None:
    """Raise `TraceAssertionError`, with the layers that differ, unless two traces have one graph.

    Compared are layers and their passes, shapes, dtypes, modules, parameters by address and shape, and which
    op reads which; not values, arguments that are no tensors, devices, or lines of
    code. Either may be a trace that was loaded.

    >>> import torch, torchlens as tl
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
    >>> assert_same_graph(tl.trace(model, torch.ones(1, 3)), tl.trace(model, torch.zeros(1, 3)))
    """
    __tracebackhide__ = True
    differences = find_differences(describe(reader_of(expected), None), describe(reader_of(found), None))
    if differences:
        raise TraceAssertionError(as_text("the second trace has another graph than the first:", differences))
