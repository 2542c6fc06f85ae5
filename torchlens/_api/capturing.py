"""`trace` and `capture`: run a model under a capture and hand back what it recorded."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

from torch import nn

from torchlens._api.trace import Trace
from torchlens._capture.collector import collector_paused
from torchlens._capture.compiled import compiled_code_eager
from torchlens._capture.random_state import derived_seed, seeded
from torchlens._capture.refusals import refuse_unsupported
from torchlens._capture.session import Session, refuse_nested
from torchlens._capture.unwrapping import root_of, unwrapped
from torchlens.errors import InputError, OptionError
from torchlens.options import CaptureOptions


def trace(
    model: Callable[..., Any],
    x: Any = (),
    *,
    input_kwargs: Mapping[str, Any] | None = None,
    capture: CaptureOptions | None = None,
) -> Trace:
    """Run `model` once and return the trace of that run.

    `x` holds the inputs: a plain `tuple` is the positional arguments, anything else is the one argument, so
    a tuple as one argument is `((a, b),)`. Random generators are seeded before the run and given their state
    back after it; the seed stands in `trace.options.seed`. An exception of the model comes through unchanged.

    >>> import torch, torchlens as tl
    >>> t = tl.trace(torch.nn.Linear(3, 2), torch.zeros(1, 3))
    >>> t["linear_1"].shape
    (1, 2)
    """
    refuse_nested()
    options = _checked(capture)
    if options.seed is None:
        options = replace(options, seed=derived_seed())
    model = unwrapped(model)
    session = _session(model, options)
    args = cast("tuple[Any, ...]", x) if type(x) is tuple else (x,)
    result = Trace()
    with seeded(options.seed), collector_paused(), compiled_code_eager():
        session.open()
        try:
            session.run(model, args, dict(input_kwargs or {}))
        except BaseException:
            session.abandon()
            raise
        captured = session.close()
    result._finish(captured.record, captured.ledger)
    return result


@contextmanager
def capture(
    model: Callable[..., Any] | Mapping[str, nn.Module], *, capture: CaptureOptions | None = None
) -> Generator[Trace]:
    """Record everything the block runs: calls of `model`, any number of them, and the block's own ops.

    `model` may be a dict of named models. The trace can be read after the block. An exception leaves the
    block as itself; the trace then holds what ran until then. Random state flows as without the capture,
    unless the options give a seed.

    >>> import torch, torchlens as tl
    >>> model = torch.nn.Linear(3, 3)
    >>> with tl.capture(model) as t:
    ...     y = model(model(torch.zeros(1, 3)))
    >>> t["linear_1"].num_passes
    2
    """
    refuse_nested()
    options = _checked(capture)
    session = _session(model, options)
    result = Trace()
    with seeded(options.seed), compiled_code_eager():
        session.open()
        try:
            yield result
        except BaseException as error:
            captured = session.close(error)
            result._finish(captured.record, captured.ledger)
            raise
        captured = session.close()
        result._finish(captured.record, captured.ledger)


def _checked(options: object) -> CaptureOptions:
    if options is None:
        return CaptureOptions()
    if not isinstance(options, CaptureOptions):
        raise OptionError(
            f"capture={options!r} is a {type(options).__name__}; give tl.options.CaptureOptions(...)"
        )
    return options


def _session(model: Callable[..., Any] | Mapping[str, nn.Module], options: CaptureOptions) -> Session:
    if isinstance(model, Mapping):
        named = dict(_named_models(cast("Mapping[str, object]", model)))
        return Session(None, named, "block", options)
    model = unwrapped(model)
    refuse_unsupported(model)
    if not callable(model):
        raise InputError(
            f"model is a {type(model).__name__}, which cannot be called; give an nn.Module or a callable"
        )
    root = root_of(model)
    name = type(root).__name__ if root is not None else getattr(model, "__name__", type(model).__name__)
    return Session(root, {}, name, options)


def _named_models(models: Mapping[str, object]) -> Iterator[tuple[str, nn.Module]]:
    for name, given in models.items():
        part: object = unwrapped(cast("Callable[..., Any]", given))
        refuse_unsupported(part, f"model[{name!r}]")
        if not isinstance(part, nn.Module):
            raise InputError(
                f"model[{name!r}] is a {type(part).__name__}; a dict of models maps names to nn.Modules"
            )
        yield name, part
