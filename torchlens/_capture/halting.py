"""Ending a forward before it is through."""

from __future__ import annotations

from typing import Any, NoReturn


class Halt(BaseException):
    """Ends the forward. No `Exception`, so that code which handles its own errors lets it pass."""


class AfterHalt(dict[Any, Any]):
    """Stands where the kinds of torch functions were: each further torch call raises again."""

    def get(self, key: Any, default: Any = None) -> NoReturn:
        raise Halt


def came_of_halt(error: BaseException | None) -> bool:
    """Whether an exception is a halt, or was raised while one passed."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, Halt):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False
