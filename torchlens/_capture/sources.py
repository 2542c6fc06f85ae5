"""What a tensor is that enters an op and that neither a call made nor the model holds.

It is known if it is older than the capture and the code reaches it by a name, or if it was made of host data
while nothing had left for the host yet. A tensor that came to be during the capture, by nothing that was
recorded, is of unknown origin even if some variable or attribute holds it by now.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import chain
from types import FrameType
from typing import Any, Final

from torch import Tensor

from torchlens._capture.ages import Ages
from torchlens._capture.call_site import CallSites
from torchlens._capture.doubts import Doubts
from torchlens._capture.host import HostData, is_torchs_memory
from torchlens._capture.model_state import ModelState
from torchlens._capture.origins import find_name, frame_roots, module_roots
from torchlens._capture.threads import ThreadWatch

_MOST_GIVEN: Final = 256
"""Arguments of root calls that are searched, the last ones of a block."""


class Sources:
    """Judges the tensors of one capture that come from outside of what was recorded."""

    def __init__(
        self, sites: CallSites, state: ModelState, host: HostData, threads: ThreadWatch, known: set[int]
    ) -> None:
        self.ages = Ages(known)
        self._sites = sites
        self._state = state
        self._host = host
        self._threads = threads
        self._given: deque[tuple[str, object]] = deque(maxlen=_MOST_GIVEN)

    def given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """What a root call is given: what it holds, to some depth, has a name."""
        self._given.extend((f"args[{at}]", value) for at, value in enumerate(args))
        self._given.extend(kwargs.items())

    def close(self) -> None:
        """Let go of everything of the user's."""
        self._given.clear()
        self.ages.close()

    def name_of(self, tensor: Tensor, frame: FrameType | None) -> str | None:
        """The nearest name for the tensor: in the op's frames, the opener's, the arguments, the modules."""
        last = self._sites.frames[-1] if self._sites.frames else self._sites.opener
        near = frame_roots(frame, last)
        if self.ages.is_young(tensor):  # a name proves nothing then: a long search would be for nothing
            return find_name(tensor, near, max_depth=1)
        return find_name(tensor, chain(near, self._lasting_roots()))

    def judge(self, row: int, tensor: Tensor, name: str | None, doubts: Doubts) -> None:
        """Note what may be doubted of the source in `row`, and its host edges."""
        if self._threads.gave(tensor):
            doubts.add("tensor_from_another_thread", row, row=row)
        elif not is_torchs_memory(tensor):
            self._host.add_returned(row, [])  # however old: the host may have written into it just now
        elif name is None or not self._is_older(tensor):
            doubts.add("unknown_origin", row, row=row)

    def _is_older(self, tensor: Tensor) -> bool:
        """Whether the tensor is older than the capture; where that costs too much, by what holds it."""
        young = self.ages.is_young(tensor)
        return find_name(tensor, self._lasting_roots()) is not None if young is None else not young

    def _lasting_roots(self) -> Iterator[tuple[str, object]]:
        """What was there before the capture began."""
        opener = self._sites.opener
        modules = module_roots(self._state.named_modules())
        return chain(frame_roots(opener, opener), self._given, modules)
