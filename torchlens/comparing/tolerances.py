"""By how much two values may differ and still be called the same, by their dtypes."""

from __future__ import annotations

import math
from typing import Final, NamedTuple, TypeAlias, cast

import torch

from torchlens.errors import OptionError

Asked: TypeAlias = float | tuple[float, float] | None
"""A number for both, (relative, absolute), or None for what the dtypes can tell apart."""


class Tolerance(NamedTuple):
    """|a - b| may be up to `absolute` + `relative` * max(|a|, |b|)."""

    relative: float
    absolute: float

    def __str__(self) -> str:
        return f"{self.absolute:g} + {self.relative:g} × the larger"


_EXACT: Final = Tolerance(0, 0)
_OF_DTYPE: Final = {
    torch.float16: Tolerance(1e-3, 1e-5),
    torch.bfloat16: Tolerance(1.6e-2, 1e-5),
    torch.float32: Tolerance(1.3e-6, 1e-5),
    torch.float64: Tolerance(1e-7, 1e-7),
    torch.complex32: Tolerance(1e-3, 1e-5),
    torch.complex64: Tolerance(1.3e-6, 1e-5),
    torch.complex128: Tolerance(1e-7, 1e-7),
}
"""The numbers that torch's own tests take."""


def tolerance_between(asked: Asked, a: torch.dtype, b: torch.dtype) -> Tolerance:
    """What was asked for, otherwise the coarser of the two dtypes' own."""
    if asked is None:
        return max(_of(a), _of(b))
    return Tolerance(asked, asked) if isinstance(asked, (int, float)) else Tolerance(*asked)


def checked(asked: Asked) -> Asked:
    """The tolerance that was asked for, as it is; raises `OptionError` if it is none."""
    if asked is None:
        return None
    amounts = cast("tuple[object, ...]", asked if isinstance(asked, tuple) else (asked, asked))
    if len(amounts) == 2 and all(map(_is_amount, amounts)):
        return asked
    raise OptionError(
        f"a tolerance is a number from 0, (relative, absolute), or None for that of the dtypes, not {asked!r}"
    )


def _is_amount(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value) and value >= 0


def _of(dtype: torch.dtype) -> Tolerance:
    known = _OF_DTYPE.get(dtype)
    if known is not None:
        return known
    if not dtype.is_floating_point:
        return _EXACT
    # eight bits and less, for which torch states nothing: the distance between 1 and its neighbour
    try:
        return Tolerance(torch.finfo(dtype).eps, 1e-5)
    except NotImplementedError:  # of a dtype that only packs bits, as float4 does
        return _EXACT
