"""Numbers, shapes and times as short text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

_PREFIXES: Final = ("", "K", "M", "G", "T", "P", "E")
_EXACT: Final = 10_000
"""Counts below this are written out."""


def short_count(number: int) -> str:
    """Three digits and a prefix: `9,408`, `37.6K`, `1.82G`."""
    return f"{number:,}" if number < _EXACT else "".join(_scaled(number))


def spaced_count(number: int, unit: str) -> str:
    """The same with a unit: `9,408 FLOPs`, `3.64 GFLOPs`."""
    if number < _EXACT:
        return f"{number:,} {unit}"
    digits, prefix = _scaled(number)
    return f"{digits} {prefix}{unit}"


def byte_count(number: int) -> str:
    """Bytes in powers of 1000: `512 B`, `46.8 MB`."""
    if number < 1000:
        return f"{number} B"
    digits, prefix = _scaled(number)
    return f"{digits} {prefix.replace('K', 'k')}B"


def duration(nanoseconds: int) -> str:
    """Three digits and a unit: `830ns`, `12.3us`, `4.56ms`, `1.23s`."""
    if nanoseconds < 1000:
        return f"{nanoseconds}ns"
    for unit, size in (("us", 1_000), ("ms", 1_000_000)):
        if nanoseconds < 999.5 * size:
            return f"{_three_digits(nanoseconds / size)}{unit}"
    return f"{_three_digits(nanoseconds / 1e9)}s"


def quantity(number: int, noun: str, plural: str | None = None) -> str:
    """`1 layer`, `3 layers`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def listed(names: Sequence[str], most: int = 3) -> str:
    """Names with commas, the later ones counted: `a, b, c and 4 more`."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


class ShapeRange:
    """The shapes that one place gave, as one text: `3×4`, `1×5..9×768` where a size varied."""

    __slots__ = ("_bounds", "_uneven")

    def __init__(self) -> None:
        self._bounds: list[tuple[int, int]] | None = None
        self._uneven = False

    def add(self, shape: Iterable[int] | None) -> None:
        """Take one more shape in; None is a tensor without one, as a nested tensor is."""
        sizes = None if shape is None else list(shape)
        if sizes is None or (self._bounds is not None and len(self._bounds) != len(sizes)):
            self._uneven = True
        elif self._bounds is None:
            self._bounds = [(size, size) for size in sizes]
        else:
            pairs = zip(self._bounds, sizes, strict=True)
            self._bounds = [(min(low, size), max(high, size)) for (low, high), size in pairs]

    def merge(self, other: ShapeRange) -> None:
        """Take the shapes of another range in."""
        if other._uneven:
            self._uneven = True
        elif other._bounds is not None:
            self.add(low for low, _ in other._bounds)
            self.add(high for _, high in other._bounds)

    def __str__(self) -> str:
        if self._uneven:
            return "varies"
        if self._bounds is None:
            return ""
        sizes = [str(low) if low == high else f"{low}..{high}" for low, high in self._bounds]
        return "×".join(sizes) or "scalar"


def shape_text(shape: Iterable[int] | None) -> str:
    """One shape: `3×4`, `scalar` without dimensions."""
    seen = ShapeRange()
    seen.add(shape)
    return str(seen)


def _scaled(number: int) -> tuple[str, str]:
    value, power = float(number), 0
    while value >= 999.5 and power < len(_PREFIXES) - 1:
        value, power = value / 1000, power + 1
    return _three_digits(value), _PREFIXES[power]


def _three_digits(value: float) -> str:
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
