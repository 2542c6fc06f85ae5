"""Comparing the values of two layers by statistics: what is not finite comes first."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Final

from torchlens.report.amounts import quantity
from torchlens.testing.description import LayerLine
from torchlens.testing.differences import Apart
from torchlens.testing.statistics import Tolerance, difference_of

_NAMES: Final = {"nan": "NaN", "inf": "inf"}


def compare_statistics(old: LayerLine, new: LayerLine, tolerance: Tolerance) -> Apart | None:
    """What sets two layers apart: NaN and infinities, of which there are others; if as many, the rest."""
    text = "; ".join(_counts_apart(old, new)) or difference_of(
        old.values or {}, new.values or {}, old.dtypes, tolerance
    )
    return None if text is None else Apart(new.first_op, text)


def _counts_apart(old: LayerLine, new: LayerLine) -> Iterator[str]:
    """`8 inf of 8 elements, none before`."""
    before, now = old.values or {}, new.values or {}
    count = _elements(new)
    among = "" if count is None else f" of {quantity(count, 'element')}"
    for key, name in _NAMES.items():
        if before.get(key) != now.get(key):
            yield f"{now.get(key, 'no')} {name}{among}, {before.get(key, 'none')} before"


def _elements(line: LayerLine) -> int | None:
    """How many elements all passes have; None where not each of them counts as one number."""
    values = line.values or {}
    looks = line.tensors.split("; ")
    if len(looks) > 1 or "?" in looks[0] or "complex" in looks[0] or "kept" in values or "unfilled" in values:
        return None
    shape = looks[0].split(" ")[0]
    return line.passes * (1 if shape == "scalar" else prod(map(int, shape.split("x"))))
