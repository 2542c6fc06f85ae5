"""`--input 1,3,224,224`: what a text says about a tensor, and the random tensor it stands for."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from torchlens.errors import TargetError

if TYPE_CHECKING:
    import torch

_FORM: Final = "[NAME=]SIZES[:DTYPE[:LOW..HIGH]], as 1,3,224,224 or ids=1,32:int64:0..50257"
_TEXT: Final = re.compile(
    r"(?:(?P<name>[A-Za-z_]\w*)=)?(?P<sizes>[^:=]*)(?::(?P<dtype>\w+)(?::(?P<low>-?\d+)\.\.(?P<high>-?\d+))?)?"
)
_SMALL_INTEGERS: Final = (0, 2)
"""Integers are indices as a rule, and these are valid ones for any table of two rows."""


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input of a model, by its text."""

    name: str | None
    """The keyword it is passed as; None for a positional argument."""
    shape: tuple[int, ...]
    dtype: str
    bounds: tuple[int, int] | None
    """Integers are drawn from the first number up to, not including, the second."""

    @classmethod
    def parse(cls, text: str) -> InputSpec:
        """Read `1,32:int64:0..50257`; raises `TargetError` with what the text lacks."""
        found = _TEXT.fullmatch(text.strip())
        if found is None:
            raise TargetError(f"input {text!r} is not of the form {_FORM}")
        bounds = None
        if found["low"] is not None:
            bounds = int(found["low"]), int(found["high"])
            if bounds[0] >= bounds[1]:
                raise TargetError(f"input {text!r} has an empty range; LOW..HIGH runs from LOW to HIGH - 1")
        return cls(found["name"], _sizes(found["sizes"], text), found["dtype"] or "float32", bounds)

    def __str__(self) -> str:
        sizes = ",".join(map(str, self.shape)) or "()"
        return f"{self.name}={sizes}:{self.dtype}" if self.name else f"{sizes}:{self.dtype}"


def _sizes(text: str, whole: str) -> tuple[int, ...]:
    if text.strip() == "()":
        return ()
    parts = text.split(",")
    wrong = [part for part in parts if not re.fullmatch(r"\s*\d+\s*", part)]
    if wrong:
        raise TargetError(
            f"input {whole!r}: {wrong[0].strip()!r} is no size; sizes are whole numbers with commas between, "
            "() for a tensor without dimensions"
        )
    return tuple(map(int, parts))


def random_tensor(spec: InputSpec, device: torch.device) -> torch.Tensor:
    """A tensor as the text describes it: normal numbers, integers from its range, or booleans."""
    import torch

    dtype = getattr(torch, spec.dtype, None)
    if not isinstance(dtype, torch.dtype):
        names = [name for name, value in vars(torch).items() if isinstance(value, torch.dtype)]
        near = difflib.get_close_matches(spec.dtype, names, n=3) or ["float32", "int64", "bool"]
        raise TargetError(f"torch has no dtype {spec.dtype!r}; did you mean {' or '.join(near)}?")
    is_integer = not (dtype.is_floating_point or dtype.is_complex or dtype is torch.bool)
    if spec.bounds is not None and not is_integer:
        raise TargetError(
            f"input {str(spec)!r} has a range, which only integers take; write :int64:LOW..HIGH"
        )
    try:
        if is_integer:
            return torch.randint(*(spec.bounds or _SMALL_INTEGERS), spec.shape, dtype=dtype, device=device)
        if dtype is torch.bool:
            return torch.rand(spec.shape, device=device) < 0.5
        small = dtype.is_floating_point and dtype.itemsize == 1  # 8-bit floats have no generator
        made = torch.randn(spec.shape, dtype=torch.float32 if small else dtype, device=device)
        return made.to(dtype)
    except (RuntimeError, TypeError, OverflowError) as error:
        raise TargetError(f"cannot make input {str(spec)!r} on {device}: {error}") from error
