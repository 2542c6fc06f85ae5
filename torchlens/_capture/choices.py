"""What a caller chose: the values to keep, the sites after which the forward may end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torchlens._capture.to_files import Destination
from torchlens._records import Reached
from torchlens._terms import EVERYTHING, NOTHING, Selector


@dataclass(slots=True)
class Goal:
    """A site after which the forward may end."""

    selector: Selector
    reached: Reached | None = None
    """The first time."""
    collected: list[Reached] | None = None
    """Every time, if a list is given."""


@dataclass(slots=True)
class Choices:
    """What a capture is to keep, and after which sites it may end."""

    save: Selector | None = None
    """None: everything."""
    goals: Sequence[Goal] = ()
    ends: bool = True
    """Whether the forward ends when all goals are reached."""
    disk: Destination | None = None
    """Where kept values are written; None: they stay in memory."""

    @property
    def saved(self) -> Selector:
        """What is to be kept."""
        return EVERYTHING if self.save is None else self.save

    @property
    def are_made(self) -> bool:
        """Whether something must be decided while the model runs."""
        return bool(self.goals) or self.save not in (None, NOTHING)
