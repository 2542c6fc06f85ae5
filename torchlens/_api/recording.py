"""`record`: the lighter path, which keeps no value unless asked and reads nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torchlens._api.running import Given, checked, read, run
from torchlens._api.sites import choices_of
from torchlens._api.trace import Trace
from torchlens._capture.choices import Choices
from torchlens._capture.session import Captured, refuse_nested
from torchlens._records import Status
from torchlens._terms import Selector
from torchlens.errors import NotSavedError
from torchlens.selectors import Sites


class Recording:
    """What a run wrote down, not read yet."""

    def __init__(self, captured: Captured, choices: Choices) -> None:
        self._captured: Captured | None = captured
        self._choices = choices

    @property
    def status(self) -> Status:
        """`complete`, or `halted` by `stop_after`."""
        return self._held.record.status

    @property
    def num_rows(self) -> int:
        """How many rows were written: inputs, calls, buffer versions, outputs."""
        return len(self._held.record.rows)

    def to_trace(self) -> Trace:
        """The trace of the run; its layers and passes are those that `trace` gives."""
        return read(self._held, self._choices)

    def cleanup(self) -> None:
        """Free everything the recording holds; traces made of it keep what they hold."""
        self._captured = None

    @property
    def _held(self) -> Captured:
        if self._captured is None:
            raise NotSavedError("recording.cleanup() has freed this recording; run it again")
        return self._captured

    def __repr__(self) -> str:
        if self._captured is None:
            return "<Recording, freed by cleanup()>"
        return f"<Recording, {self.status}, {self.num_rows} rows>"


def record(
    model: Callable[..., Any],
    x: Any = (),
    *,
    input_kwargs: Mapping[str, Any] | None = None,
    save: Sites | None = None,
    stop_after: str | Selector | None = None,
) -> Recording:
    """Run `model` once and write down what ran; `save` names the values to keep, which are none otherwise.

    Arguments are those of `trace`.

    >>> import torch, torchlens as tl
    >>> recording = tl.record(torch.nn.Linear(3, 2), torch.zeros(1, 3))
    >>> recording.to_trace()["linear_1"].shape
    (1, 2)
    """
    refuse_nested()
    choices = choices_of(model, [] if save is None else save, stop_after)
    captured = run(model, Given.of(x, input_kwargs), checked(None), choices)
    if any(goal.reached is None for goal in choices.goals):
        read(captured, choices)  # which says what was not reached
    return Recording(captured, choices)
