"""A saved trace or a target, and the trace that either gives."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torchlens as tl
from torchlens.cli.ending import NOT_WELL, stop
from torchlens.cli.inputs import InputSpec, random_tensor
from torchlens.cli.progress import shown_when_long
from torchlens.cli.target import build_model, build_object, usable_device
from torchlens.errors import TargetError, TorchLensError

if TYPE_CHECKING:
    import torch
    from torch import nn

_ENDING = ".tlens"


@dataclass(frozen=True)
class Run:
    """How a target is run."""

    inputs: Sequence[str] = field(default_factory=list[str])
    device: str = "cpu"
    seed: int = 0
    train: bool = False


def is_saved(subject: str) -> bool:
    """Whether a text names a saved trace rather than a target."""
    return subject.endswith(_ENDING) or Path(subject).is_dir()


def open_trace(subject: str, run: Run, *, keep: Sequence[str] | None = None) -> tl.Trace:
    """The trace that was saved there, or that one forward of the target gives, also if it raises."""
    if not is_saved(subject):
        return _run(subject, run, keep)
    refuse_run(run, f"{subject} is a saved trace")
    with shown_when_long(f"reading {subject}"):
        return tl.load(subject)


def refuse_run(run: Run, reason: str) -> None:
    """Raise if it was said how to run a target, where none is run."""
    plain = Run()
    given = {
        "--input": bool(run.inputs),
        "--device": run.device != plain.device,
        "--seed": run.seed != plain.seed,
        "--train": run.train != plain.train,
    }
    for option, is_given in given.items():
        if is_given:
            raise TargetError(f"{option} is for a target, which is run, and {reason}; leave it out")


def end_like(trace: tl.Trace, subject: str, run: Run) -> None:
    """End with an error if the model raised."""
    raised = error_of(trace, subject, run)
    if raised is not None:
        stop(raised, NOT_WELL)


def error_of(trace: tl.Trace, subject: str, run: Run) -> str | None:
    """What the model raised, and what may help; None if it ran through."""
    error = trace.error
    if error is None:
        return None
    hint = "" if run.inputs or is_saved(subject) else "; --input gives it inputs"
    return f"the model raised {error.type_name}: {error.message}{hint}"


def prepare(subject: str, run: Run) -> tuple[object, tuple[Any, ...] | None, dict[str, Any]]:
    """What a target gives, be it a model or not, and its inputs; None where none are given."""
    import torch

    specs = [InputSpec.parse(text) for text in run.inputs]
    place = usable_device(run.device)
    with _prints_aside():
        model = build_object(subject, run.seed)
    if isinstance(model, torch.nn.Module):
        _move(model, place)
        model.train(run.train)
    args, kwargs = _random_inputs(specs, place)
    return model, args if specs else None, kwargs


def _run(target: str, run: Run, keep: Sequence[str] | None) -> tl.Trace:
    specs = [InputSpec.parse(text) for text in run.inputs]
    place = usable_device(run.device)
    with _prints_aside():
        model = build_model(target, run.seed)
    _move(model, place)
    args, kwargs = _random_inputs(specs, place)
    model.train(run.train)
    trace: tl.Trace | None = None
    try:
        options = tl.options.CaptureOptions(seed=run.seed)
        kept = None if keep is None else list(keep)
        with _prints_aside(), tl.capture(model, save=kept, capture=options) as trace:
            model(*args, **kwargs)
    except TorchLensError:
        raise
    except (Exception, SystemExit):  # noqa: BLE001  whatever the model raises is told by the trace
        pass
    assert trace is not None
    return trace


def _prints_aside() -> AbstractContextManager[object]:
    """What the target's own code prints goes to stderr: stdout has what was asked for."""
    return redirect_stdout(sys.stderr)


def _move(model: nn.Module, place: torch.device) -> None:
    try:
        model.to(place)
    except (RuntimeError, NotImplementedError) as error:
        raise TargetError(f"the model cannot be moved to {str(place)!r}: {error}") from error


def _random_inputs(specs: list[InputSpec], place: torch.device) -> tuple[tuple[Any, ...], dict[str, Any]]:
    args = tuple(random_tensor(spec, place) for spec in specs if spec.name is None)
    return args, {spec.name: random_tensor(spec, place) for spec in specs if spec.name is not None}
