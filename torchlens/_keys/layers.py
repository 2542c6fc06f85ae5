"""Which calls are passes of one layer, and what the layers are called: on first sight, in capture order.

The key of a call is (module, place in the code, function as written, output slot). Nothing about values,
shapes, weights or the graph takes part. Used while the model runs, where labels are asked for then, and
afterwards over the whole record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from torchlens._keys.chains import Chains
from torchlens._keys.names import Speller, Written, type_of
from torchlens._records import Kind, Side


class Place(NamedTuple):
    """A function as written at a place. Equal numbers: the same function, the same place."""

    number: int
    func_name: str
    type: str


class CallKeys:
    """The keys of calls. Two calls' outputs are passes of one layer if and only if their keys are equal."""

    def __init__(self, chains: Chains, speller: Speller, is_tensor: Callable[[object], bool]) -> None:
        self._chains = chains
        self._speller = speller
        self._is_tensor = is_tensor
        self.known: dict[tuple[int, int, Side], Place] = {}
        """By site, id of the function and side, what calls are where these three tell it: nearly all."""
        self._places: dict[object, Place] = {}
        self._numbers: dict[tuple[int, str], int] = {}
        self._positions: Counter[int] = Counter()

    def place(self, site: int, func: Any, args: tuple[Any, ...], side: Side, kind: Kind) -> Place:
        """What a call at a place is.

        The blocks of a model share their code, so nearly every call repeats a function at an unfolded place.
        Its parts come one by one: to put them into one object would take longer than the rest.
        """
        sketch = (site, self._speller.sketch(func, args, side))
        found = self._places.get(sketch)
        if found is None:
            func_name = self._speller.spelling(Written(kind, func, site, args, side)).func_name
            place = self._chains.key(site)
            number = self._numbers.setdefault((place, func_name), len(self._numbers))
            found = self._places[sketch] = Place(number, func_name, type_of(func_name))
        if side is not None or not self._speller.is_sided(func):  # a side is told where no tensor is on it
            self.known[site, id(func), side] = found
        return found

    def position(self, call: Written, module_call: int) -> Hashable:
        """The key of a call without a frame: how many such came before in the module call, and the plain
        arguments. To be asked once for each such call, in order."""
        position = self._positions[module_call]
        self._positions[module_call] += 1
        plain = repr([arg for arg in call.args if not self._is_tensor(arg)])
        return "position", self._speller.spelling(call).func_name, plain, position


class LayerNumbers:
    """Numbers layers by type, as keys are met."""

    def __init__(self) -> None:
        self.of: dict[Hashable, int] = {}
        """Key to layer."""
        self.labels: list[str] = []
        self._counts: dict[str, int] = {}

    def add(self, key: Hashable, type_: str) -> int:
        """The layer of a key that was not met before."""
        layer = self.of[key] = len(self.labels)
        count = self._counts[type_] = self._counts.get(type_, 0) + 1
        self.labels.append(f"{type_}_{count}")
        return layer
