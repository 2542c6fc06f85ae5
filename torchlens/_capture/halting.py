"""Ending a forward before it is through."""

from __future__ import annotations

import sys
from typing import Any

from torchlens._capture.kinds import INERT


class Halt(BaseException):
    """Ends the forward. No `Exception`, so that code which handles its own errors lets it pass."""


class AfterHalt(dict[Any, Any]):
    """Stands where the kinds of torch functions were: each further torch call raises again.

    While the halt passes, `finally` blocks and context managers put back what they changed, the grad mode for
    one: their calls are made, and not recorded.
    """

    def get(self, key: Any, default: Any = None) -> str:
        if came_of_halt(sys.exc_info()[1]):
            return INERT
        raise Halt


def came_of_halt(error: BaseException | None) -> bool:
    """Whether an exception is a halt, or was raised while one passed."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        found = waiting.pop()
        if isinstance(found, Halt):
            return True
        if found is not None and id(found) not in seen:
            seen.add(id(found))
            waiting += [found.__cause__, found.__context__]
    return False
