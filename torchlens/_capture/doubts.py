"""What the parts of a capture found for which the trace cannot vouch for its graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from torchlens._records import Reason, ReasonName

_TEXTS: Final[dict[ReasonName, str]] = {
    "unknown_origin": "A tensor came from a place that was not seen.",
    "tensor_from_another_thread": "A tensor was made on another thread, which is not seen.",
    "owner_thread_tripwire_changed": "Python threads were started or ended during the forward.",
    "host_round_trip": "A tensor was made of host data after values had left through numpy or lists.",
    "write_through_numpy": "A tensor's memory was changed through numpy, which no op tells of.",
    "unexplained_write": "A tensor was changed in place by something that was not seen.",
    "transform_not_followed": (
        "A torch.func transform ran under a profiler that could not be shared; it has no op."
    ),
    "compiled_region_skipped": "Compiled code ran without being seen.",
    "fused_prediction": "A module was expected to run a fused kernel and did not.",
    "unwitnessed_op": "An operator ran that no op of the trace accounts for.",
}


@dataclass(slots=True)
class _Found:
    at: int
    text: str
    count: int = 0
    rows: list[int] = field(default_factory=list[int])


class Doubts:
    """Collects reasons by name. Each part of a capture adds to it what it cannot vouch for."""

    def __init__(self) -> None:
        self._found: dict[ReasonName, _Found] = {}

    def add(
        self, name: ReasonName, at: int, *, row: int | None = None, count: int = 1, text: str | None = None
    ) -> None:
        """Note `count` more of what `name` says, found when there were `at` rows, concerning the op `row`.

        `text` says it in other words than the usual ones.
        """
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = _Found(at, text or _TEXTS[name])
        found.at = min(found.at, at)
        found.count += count
        if row is not None:
            found.rows.append(row)

    def drop(self, name: ReasonName, row: int) -> None:
        """Take back what was noted for a row: it turned out to be explained."""
        found = self._found.get(name)
        if found is not None and row in found.rows:
            found.rows.remove(row)
            found.count -= 1
            if not found.count:
                del self._found[name]

    def reasons(self) -> list[Reason]:
        """All that was noted, in the order in which it came up."""
        ordered = sorted(self._found.items(), key=lambda item: item[1].at)
        return [Reason(name, found.text, found.count, found.rows) for name, found in ordered]
