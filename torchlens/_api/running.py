"""One forward of a model under a capture, from its arguments to a trace."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import nn

from torchlens._api.sites import refuse_missing, refuse_not_reached
from torchlens._api.trace import Trace
from torchlens._capture.choices import Choices
from torchlens._capture.collector import collector_paused
from torchlens._capture.compiled import compiled_code_eager
from torchlens._capture.halting import came_of_halt
from torchlens._capture.random_state import derived_seed, seeded
from torchlens._capture.refusals import refuse_unsupported
from torchlens._capture.session import Captured, Session, refuse_nested
from torchlens._capture.unwrapping import root_of, unwrapped
from torchlens._values.ghost import Ghost
from torchlens.errors import InputError, OptionError
from torchlens.options import CaptureOptions


@dataclass(slots=True)
class Given:
    """What a model is called with."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @classmethod
    def of(cls, x: Any, input_kwargs: Mapping[str, Any] | None) -> Given:
        """A plain tuple is the positional arguments, anything else the one argument."""
        args = cast("tuple[Any, ...]", x) if type(x) is tuple else (x,)
        return cls(args, dict(input_kwargs or {}))


def run(model: Callable[..., Any], given: Given, options: CaptureOptions, choices: Choices) -> Captured:
    """Run the model once, seeded and with every state given back."""
    refuse_nested()
    if options.seed is None:
        options = replace(options, seed=derived_seed())
    model = unwrapped(model)
    session = session_of(model, options, choices)
    with seeded(options.seed), collector_paused(), compiled_code_eager(), grad_mode(options):
        session.open()
        try:
            session.run(model, given.args, given.kwargs)
        except BaseException as error:
            if not (session.halted and came_of_halt(error)):
                session.abandon()
                raise
        return session.close()


def read(captured: Captured, choices: Choices) -> Trace:
    """The trace of a run, after a look at whether the sites that were named have been met."""
    result = Trace()
    result._finish(captured.record, captured.ledger)
    settle(result, captured, choices)
    return result


def settle(trace: Trace, captured: Captured, choices: Choices) -> None:
    """Decide what needed labels to be decided, and raise for sites that were named and not met."""
    forget_unmeant(trace, captured, choices)
    refuse_not_reached(trace._views, choices.goals)
    if choices.save is not None and trace.status == "complete":
        refuse_missing(trace._views, [choices.save])


def forget_unmeant(trace: Trace, captured: Captured, choices: Choices) -> None:
    """Of buffer versions, whose labels are known only now, keep those that are meant."""
    for row in captured.doubtful:
        op = trace._views.op(trace._reader.numbers.first[row])
        held = trace._reader.tensor(row, 0)
        if isinstance(held, Ghost) and not choices.saved.matches(op):
            held.forget()


def checked(options: object, storage: object = None) -> CaptureOptions:
    """Capture options, or an error that says what they must be."""
    if options is None:
        return CaptureOptions()
    if not isinstance(options, CaptureOptions):
        raise OptionError(
            f"capture={options!r} is a {type(options).__name__}; give tl.options.CaptureOptions(...)"
        )
    if options.backward_ready and not torch.is_grad_enabled():
        raise OptionError(
            "backward_ready=True asks for values that gradients flow through, and gradients are off here; "
            "leave torch.no_grad() first"
        )
    _check_device(options.output_device)
    if storage is not None:
        for name in ("backward_ready", "copy", "output_device"):
            if getattr(options, name):
                raise OptionError(
                    f"storage=tl.to_disk(...) and {name} contradict each other: values in files are copies, "
                    "on the host and outside the autograd graph; leave one of them out"
                )
    return options


def _check_device(device: str | None) -> None:
    """Raise for a device that values cannot be kept on."""
    if device is None:
        return
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        first = str(error).partition("\n")[0]
        raise OptionError(
            f"output_device={device!r} cannot hold values here ({first}); give one that this torch has, such "
            "as 'cpu'"
        ) from error


@contextmanager
def grad_mode(options: CaptureOptions) -> Generator[None]:
    """Run the body without gradients if the options say so."""
    if not options.inference_only:
        yield
        return
    with torch.no_grad():
        yield


def session_of(
    model: Callable[..., Any] | Mapping[str, nn.Module], options: CaptureOptions, choices: Choices
) -> Session:
    """A session for a model, a callable, or named models."""
    if isinstance(model, Mapping):
        named = dict(_named_models(cast("Mapping[str, object]", model)))
        return Session(None, named, "block", options, choices)
    model = unwrapped(model)
    refuse_unsupported(model)
    if not callable(model):
        raise InputError(
            f"model is a {type(model).__name__}, which cannot be called; give an nn.Module or a callable"
        )
    root = root_of(model)
    name = type(root).__name__ if root is not None else getattr(model, "__name__", type(model).__name__)
    return Session(root, {}, name, options, choices)


def _named_models(models: Mapping[str, object]) -> Iterator[tuple[str, nn.Module]]:
    for name, given in models.items():
        part: object = unwrapped(cast("Callable[..., Any]", given))
        refuse_unsupported(part, f"model[{name!r}]")
        if not isinstance(part, nn.Module):
            raise InputError(
                f"model[{name!r}] is a {type(part).__name__}; a dict of models maps names to nn.Modules"
            )
        yield name, part
