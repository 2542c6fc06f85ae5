"""How many parameters a module has."""

from __future__ import annotations

from torchlens._trace.module import Module
from torchlens.report.sizes import numel


def num_params(module: Module) -> int:
    """Elements of all parameters in a module and in those below it, ties once."""
    params: dict[int, int] = {}
    seen: set[int] = set()
    waiting = [module]
    while waiting:
        each = waiting.pop()
        if each.index not in seen:  # a module may hold itself
            seen.add(each.index)
            waiting.extend(each.children)
            params.update((param.index, numel(param._tensor) or 0) for param in each.params)
    return sum(params.values())
