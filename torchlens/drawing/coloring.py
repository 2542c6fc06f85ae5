"""Colors of nodes: by the kind of op, by a quantity, or by how far two runs are apart; and their legend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from torchlens._records import Kind
from torchlens.drawing.quantities import Quantity
from torchlens.drawing.scene import Leaf, Status


class Paint(NamedTuple):
    """How a node is filled, bordered and written on, as `#rrggbb`."""

    fill: str
    border: str
    text: str = "#1b2733"

    @property
    def quiet(self) -> str:
        """The color of words that matter less: that of all words where a softer one would be hard to read."""
        return "#5f6b78" if _lightness(self.fill) > _LIGHT else self.text


class Swatch(NamedTuple):
    """One color of a legend and what it means."""

    fill: str
    text: str


class Coloring(Protocol):
    """What colors the nodes of one picture."""

    @property
    def title(self) -> str:
        """What the colors stand for; empty where that needs no saying."""
        ...

    def paint(self, leaves: Sequence[Leaf], is_module: bool) -> Paint:
        """The colors of a node that stands for some leaves."""
        ...

    def text(self, leaves: Sequence[Leaf]) -> str:
        """What the node's color stands for, in words; empty where it needs no saying."""
        ...

    def legend(self) -> Sequence[Swatch]:
        """What the colors mean."""
        ...


_UNKNOWN: Final = Paint("#ffffff", "#9aa5b1")
_MODULE: Final = Paint("#e3ebf6", "#5b7ba6")
_KINDS: Final[dict[Kind, Paint]] = {
    "input": Paint("#d9f0e3", "#3c8d63"),
    "output": Paint("#fbe3d2", "#c06a2b"),
    "buffer": Paint("#efe9f7", "#7d64a8"),
    "source": Paint("#f6f1d5", "#9c8a2d"),
    "boundary": Paint("#f7dfe8", "#a84a72"),
    "call": Paint("#ffffff", "#7b8794"),
}
_WITH_PARAMS: Final = Paint("#e8f1fb", "#3f78b5")


class ByKind:
    """Inputs, outputs, state and ops with parameters each have a color."""

    title = ""

    def paint(self, leaves: Sequence[Leaf], is_module: bool) -> Paint:
        """The color of the first leaf's kind, or that of closed modules."""
        op = leaves[0].first
        if is_module:
            return _MODULE
        return _WITH_PARAMS if op.kind == "call" and op.params else _KINDS[op.kind]

    def text(self, leaves: Sequence[Leaf]) -> str:
        """Nothing: the nodes say what they are."""
        return ""

    def legend(self) -> Sequence[Swatch]:
        """Nothing either."""
        return ()


_SCALE: Final = ("#f4f8fd", "#c6dcf0", "#7fb3dc", "#2f7dbb", "#0b3f77")
_WORDS: Final = (
    "#a6d3ef #f6c98c #a5dbc6 #efe39b #e9b8d3 #b9c0e6 #f2b39b #cfd6dd #c5dc9c #d8c2ad #9fd8de #e3d5f2".split()
)
_STEPS: Final = 5


class ByQuantity:
    """A scale from the least to the greatest amount, or a color for each word."""

    def __init__(self, quantity: Quantity, shown: Sequence[Sequence[Leaf]]) -> None:
        """`shown`: the leaves that each node of the picture stands for."""
        self._quantity = quantity
        self.title = quantity.name
        values = [self._value(leaves) for leaves in shown]
        amounts = [value for value in values if isinstance(value, float)]
        self._words = list(dict.fromkeys(value for value in values if isinstance(value, str)))
        self._low, self._high = min((*amounts, 0.0)), max(amounts, default=0.0)
        self._unknown = any(value is None for value in values)
        self._any = bool(amounts)

    def _value(self, leaves: Sequence[Leaf]) -> float | str | None:
        return self._quantity.of_ops([op for leaf in leaves for op in leaf.ops])

    def paint(self, leaves: Sequence[Leaf], is_module: bool) -> Paint:
        """The color of the amount or word of all that a node stands for; white where there is none."""
        value = self._value(leaves)
        if value is None:
            return _UNKNOWN
        if isinstance(value, str):
            return Paint(_WORDS[self._words.index(value) % len(_WORDS)], "#7b8794")
        span = self._high - self._low
        return _on_scale((value - self._low) / span if span else 0.0)

    def text(self, leaves: Sequence[Leaf]) -> str:
        """The amount or word of all that a node stands for."""
        value = self._value(leaves)
        return value if isinstance(value, str) else "" if value is None else self._quantity.text(value)

    def legend(self) -> Sequence[Swatch]:
        """The words, or five steps of the scale; and white for what is not known."""
        found = [Swatch(_WORDS[at % len(_WORDS)], word) for at, word in enumerate(self._words[: len(_WORDS)])]
        more = len(self._words) - len(_WORDS)
        found += [Swatch("#ffffff", f"{more} more words, in the same colors")] if more > 0 else []
        if self._any:
            parts = [at / (_STEPS - 1) for at in range(_STEPS)] if self._high > self._low else [0.0]
            found += [
                Swatch(_on_scale(part).fill, self._quantity.text(self._low + part * (self._high - self._low)))
                for part in parts
            ]
        return [*found, Swatch(_UNKNOWN.fill, "not known")] if self._unknown else found


_EQUAL: Final = Paint("#ffffff", "#9aa5b1")
_NOT_COMPARED: Final = Paint("#eceff3", "#7b8794")
_AMONG_EQUAL: Final = Paint("#eef3da", "#5c7a29")
_ADDED: Final = Paint("#d3f0dc", "#1f7a43")
_REMOVED: Final = Paint("#fbdcdc", "#b3261e")
_SIGNS: Final[dict[Status, str]] = {"added": "+", "removed": "−"}
_DISTANCES: Final = ("#fff6dd", "#fde0a3", "#f8b765", "#e58236", "#b3540f")
_LEAST: Final = 1e-8
"""The relative difference at which the scale of differences begins; it ends at 1."""


class ByDifference:
    """Added and removed ops, and the largest relative difference of the values, on a logarithmic scale."""

    title = "largest relative difference"

    def paint(self, leaves: Sequence[Leaf], is_module: bool) -> Paint:
        """The greatest difference in what a node stands for; added or removed if all of it is."""
        marks = [leaf.mark for leaf in leaves if leaf.mark is not None]
        statuses: set[Status] = {mark.status for mark in marks}
        if statuses == {"added"}:
            return _ADDED
        if statuses == {"removed"}:
            return _REMOVED
        both = [mark for mark in marks if mark.status == "both"]
        if all(mark.equal for mark in both):
            return _EQUAL if both == marks else _AMONG_EQUAL
        distances = [mark.distance for mark in both]
        known = [distance for distance in distances if distance is not None]
        if not known or (None in distances and max(known) == 0):
            return _NOT_COMPARED
        return self._on_scale(max(known))

    def text(self, leaves: Sequence[Leaf]) -> str:
        """The sign of what is added or removed; of several ops how many are, and how far values are apart."""
        counts = [
            sum(leaf.mark is not None and leaf.mark.status == each for leaf in leaves) for each in _SIGNS
        ]
        if len(leaves) == 1:
            return next((f"{sign} {each}" for (each, sign), n in zip(_SIGNS.items(), counts) if n), "")
        known = [leaf.mark.distance for leaf in leaves if leaf.mark is not None and leaf.mark.distance]
        apart = [f"up to {max(known):.2g}"] if known else []
        return " ".join([*(f"{sign}{n}" for sign, n in zip(_SIGNS.values(), counts) if n), *apart])

    def legend(self) -> Sequence[Swatch]:
        """Added, removed, equal, and steps of the scale."""
        steps = {_LEAST: f"up to {_LEAST:g}", **{step: f"{step:g}" for step in (1e-6, 1e-4, 1e-2, 1.0)}}
        return [
            Swatch(_ADDED.fill, "+ added"),
            Swatch(_REMOVED.fill, "− removed"),
            Swatch(_EQUAL.fill, "equal"),
            Swatch(_AMONG_EQUAL.fill, "equal but for what is added or removed in it"),
            *(Swatch(self._on_scale(step).fill, text) for step, text in steps.items()),
            Swatch(_NOT_COMPARED.fill, "not compared"),
        ]

    def _on_scale(self, distance: float) -> Paint:
        part = math.log10(max(min(distance, 1.0), _LEAST) / _LEAST) / -math.log10(_LEAST)
        return _on_scale(part, _DISTANCES)


def _on_scale(part: float, scale: Sequence[str] = _SCALE) -> Paint:
    """The color so far along a scale, 0 to 1; dark ones are written on in white."""
    place = min(max(part, 0.0), 1.0) * (len(scale) - 1)
    at = min(int(place), len(scale) - 2)
    low, high = map(_channels, scale[at : at + 2])
    mixed = [round(a + (b - a) * (place - at)) for a, b in zip(low, high)]
    fill = "#" + "".join(f"{value:02x}" for value in mixed)
    return Paint(fill, "#5b6b7b", "#ffffff" if _lightness(fill) < _DARK else "#1b2733")


_DARK: Final = 140
_LIGHT: Final = 220
"""Of 255: white is written on what is darker than the one, grey on what is lighter than the other."""


def _lightness(color: str) -> float:
    """The luma of a color, by the weights of ITU-R BT.601."""
    red, green, blue = _channels(color)
    return 0.299 * red + 0.587 * green + 0.114 * blue


def _channels(color: str) -> tuple[int, int, int]:
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)
