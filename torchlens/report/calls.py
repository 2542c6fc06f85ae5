"""How a call is named on a page: the function with those it was reached through, and the module it ran in."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby


def reached(func_name: str, composites: Sequence[str]) -> str:
    """`relu`, `linalg_vector_norm, through normalize and norm`; namesakes in a row are named once."""
    around = [name for name, _ in groupby([*composites, func_name])][:-1]
    return f"{func_name}, through {' and '.join(around)}" if around else func_name


def where(address: str, type_name: str) -> str:
    """`block.norm (LayerNorm)`, `the root (Net)`."""
    return f"{address or 'the root'} ({type_name})"
