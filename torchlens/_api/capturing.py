"""`trace` and `capture`: run a model under a capture and hand back what it recorded."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import nn

from torchlens._api.running import Given, checked, forget_unmeant, grad_mode, read, run, session_of, settle
from torchlens._api.sites import choices_of
from torchlens._api.trace import Trace
from torchlens._capture.compiled import compiled_code_eager
from torchlens._capture.halting import came_of_halt
from torchlens._capture.random_state import seeded
from torchlens._capture.session import refuse_nested
from torchlens._terms import Selector
from torchlens.errors import OptionError
from torchlens.options import CaptureOptions
from torchlens.selectors import Sites
from torchlens.storage import ToDisk


def trace(  # noqa: PLR0913 - the public surface fixes them
    model: Callable[..., Any],
    x: Any = (),
    *,
    input_kwargs: Mapping[str, Any] | None = None,
    save: Sites | None = None,
    stop_after: str | Selector | None = None,
    storage: ToDisk | None = None,
    capture: CaptureOptions | None = None,
    backend: str | None = None,
) -> Trace:
    """Run `model` once and return the trace of that run.

    `x` holds the inputs: a plain `tuple` is the positional arguments, anything else is the one argument, so
    a tuple as one argument is `((a, b),)`. Random generators are seeded before the run and given their state
    back after it; the seed stands in `trace.options.seed`. An exception of the model comes through unchanged,
    and there is no trace then: `capture` keeps what ran until it was raised.

    `save` names the values to keep: labels, module addresses, selectors, or a list of these; None keeps all,
    `[]` none. The graph and everything else is recorded anyway, what the model returned is kept in any case,
    and reading a value that was not kept raises `NotSavedError`. `stop_after` ends the forward right after a
    site; one that never runs raises `NotReachedError` or `MissingKeyError`. With `storage=tl.to_disk(path)`
    the kept values are written to files while the model runs.

    >>> import torch, torchlens as tl
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
    >>> t = tl.trace(model, torch.zeros(1, 3), save="0")
    >>> t["linear_1"].shape, t["relu_1"].num_passes
    ((1, 2), 1)
    """
    _refuse_backend(backend)
    refuse_nested()
    options = checked(capture, storage)
    choices = choices_of(model, save, stop_after, storage)
    return read(run(model, Given.of(x, input_kwargs), options, choices), choices)


@contextmanager
def capture(
    model: Callable[..., Any] | Mapping[str, nn.Module],
    *,
    save: Sites | None = None,
    stop_after: str | Selector | None = None,
    storage: ToDisk | None = None,
    capture: CaptureOptions | None = None,
) -> Generator[Trace]:
    """Record everything the block runs: calls of `model`, any number of them, and the block's own ops.

    `model` may be a dict of named models. The trace can be read after the block. An exception leaves the
    block as itself; the trace then holds what ran until then, and `trace.error` tells of it. Random state
    flows as without the capture, unless the options give a seed. `save`, `stop_after` and `storage` are those
    of `trace`; where the run stops, the block ends.

    >>> import torch, torchlens as tl
    >>> model = torch.nn.Linear(3, 3)
    >>> with tl.capture(model) as t:
    ...     y = model(model(torch.zeros(1, 3)))
    >>> t["linear_1"].num_passes
    2
    """
    refuse_nested()
    options = checked(capture, storage)
    choices = choices_of(model, save, stop_after, storage)
    session = session_of(model, options, choices)
    result = Trace()
    with seeded(options.seed), compiled_code_eager(), grad_mode(options):
        session.open()
        try:
            yield result
        except BaseException as error:
            halted = session.halted and came_of_halt(error)
            captured = session.close(error)
            result._finish(captured.record, captured.ledger)
            if not halted:
                forget_unmeant(result, captured, choices)
                raise
        else:
            captured = session.close()
            result._finish(captured.record, captured.ledger)
    settle(result, captured, choices)


def _refuse_backend(backend: str | None) -> None:
    if backend not in (None, "torch"):
        raise OptionError(
            f"backend={backend!r} is not one that there is yet; leave it out, which means torch"
        )
