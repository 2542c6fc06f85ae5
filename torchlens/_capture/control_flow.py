"""Control-flow operators (`torch.cond`, `scan`, flex attention) as torch runs them without a capture."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any

from torchlens._capture.compiled import compiled_as_usual, torchs_own_compiling


def as_without_capture(
    func: Callable[..., Any], caller: FrameType, hooks_away: Callable[[], AbstractContextManager[None]]
) -> Callable[..., Any]:
    """What to call for the operator `func` that `caller` calls.

    Torch compiles these by itself, which a capture's hold on compiled code prevents, and module hooks would.
    """
    compiled = torchs_own_compiling(caller)
    if compiled is None:
        return func

    def run(*_args: Any, **_kwargs: Any) -> Any:
        with compiled_as_usual(), hooks_away():
            return compiled()

    return run
