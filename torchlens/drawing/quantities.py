"""What a picture can be coloured by: a number or a word for each op, and for several ops together."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any, Final, Literal, TypeAlias, cast

from torch import Tensor

from torchlens._trace.op import Op
from torchlens.errors import OptionError
from torchlens.report.amounts import byte_count, duration, listed, spaced_count

QuantityName: TypeAlias = Literal["time", "flops", "bytes"]
ColorBy: TypeAlias = QuantityName | Callable[[Op], object]


@dataclass(frozen=True, slots=True)
class Quantity:
    """Something that ops have an amount of, or a word for."""

    name: str
    of: Callable[[Op], object]
    text: Callable[[float], str]
    adds_up: bool
    """Whether several ops together have the sum; otherwise the mean."""

    def of_ops(self, ops: Sequence[Op]) -> float | str | None:
        """Of several ops together: the sum or mean of what is known, words joined; None where nothing is."""
        found = [value for op in ops if (value := self._read(op)) is not None]
        words = [value for value in found if isinstance(value, str)]
        if words:
            return listed(list(dict.fromkeys(map(_as_word, found))))
        amounts = cast("list[float]", found)
        if not amounts:
            return None
        return _finite(lambda: math.fsum(amounts) / (1 if self.adds_up else len(amounts)))

    def _read(self, op: Op) -> float | str | None:
        value = _plain(self.of(op), op)
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, (numbers.Real, Decimal)):
            return _finite(lambda: float(value))
        raise OptionError(
            f"color_by gave {type(value).__name__} for {op.label}; "
            "it is to give a number, a word, True or False, or None where there is nothing to say"
        )


def _plain(value: object, op: Op) -> object:
    """What a tensor or array of one element holds, and the value itself otherwise."""
    if not _is_number(value):
        return value
    if isinstance(value, Tensor) and value.is_meta:
        raise OptionError(
            f"color_by gave a meta tensor for {op.label}, which has no value; return None for such ops"
        )
    return cast("Any", value).item()


def _finite(compute: Callable[[], float]) -> float | None:
    """A number; None for one that is larger than a float can be, or no number."""
    try:
        number = compute()
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _as_word(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"


def _is_number(value: object) -> bool:
    """Whether it is a tensor or array of one element."""
    shape = cast("object", getattr(value, "shape", None))
    return isinstance(shape, tuple) and set(cast("tuple[object]", shape)) <= {1} and hasattr(value, "item")


_NAMED: Final = {
    "time": Quantity("time", lambda op: op.duration_ns, lambda amount: duration(round(amount)), True),
    "flops": Quantity(
        "flops", lambda op: op.flops, lambda amount: spaced_count(round(amount), "FLOPs"), True
    ),
    "bytes": Quantity("bytes", lambda op: op.nbytes, lambda amount: byte_count(round(amount)), True),
}


def quantity_of(color_by: ColorBy) -> Quantity:
    """The quantity that is named, or that a function of an op gives."""
    if isinstance(color_by, str):
        if color_by not in _NAMED:
            raise OptionError(
                f"color_by is {color_by!r}; "
                f"it is one of {', '.join(map(repr, _NAMED))}, or a function of an op"
            )
        return _NAMED[color_by]
    if not callable(color_by):
        raise OptionError(
            f"color_by is a {type(color_by).__name__}; "
            f"it is one of {', '.join(map(repr, _NAMED))}, or a function of an op"
        )
    name = getattr(color_by, "__name__", type(color_by).__name__)
    of = cache(color_by)  # a picture asks several times, and is to be told the same
    return Quantity("value" if name == "<lambda>" else name, of, lambda amount: f"{amount:.4g}", False)
