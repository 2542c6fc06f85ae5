"""The names under which torch passes operators on are what `torchlens._keys.spelling` takes them to be."""

import functools
import math
import operator
import sys
from types import BuiltinFunctionType

import pytest

from tests.keys.test_spelling import CALLS, OPERATORS, rows
from torchlens._keys.sides import needs_side, side_of_tensor
from torchlens._keys.spelling import spell

torch = pytest.importorskip("torch")
overrides = pytest.importorskip("torch.overrides")


def is_tensor(value):
    return issubclass(type(value), torch.Tensor)


class Speller(overrides.TorchFunctionMode):
    """Spells every call, without entering what torch writes in Python."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        frame = sys._getframe(1)
        if frame.f_code is overrides.handle_torch_function.__code__:
            frame = frame.f_back.f_back  # past the function that asks whether to hand over
        name, is_method = func.__name__, not isinstance(func, BuiltinFunctionType)
        second = "none" if len(args) < 2 else "tensor" if is_tensor(args[1]) else "other"
        asked = needs_side(name) and second == "other" and is_method
        side = side_of_tensor(frame, is_tensor) if asked else None
        spelling = spell(name, frame.f_code, frame.f_lasti, side, is_method, second)
        if name != "__bool__":
            self.names.append(spelling.func_name if spelling.known else spelling.func_name + "?")
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("source", "expected"), [*rows(OPERATORS), *rows(CALLS)])
def test_spelling_of_real_calls(source, expected):
    of_bits = any(sign in source for sign in ("&", "|", "^", "~", "<<", ">>", "and_", "__rand__"))
    dtype = torch.int64 if of_bits else torch.float32
    names = {"x": torch.full((1, 1), 2, dtype=dtype), "y": torch.ones(1, 1, dtype=dtype), "one": 1}
    code = compile(source, "<snippet>", "exec")
    with Speller() as speller:
        exec(code, {**names, "torch": torch, "operator": operator, "functools": functools, "math": math})
    assert " ".join(speller.names) == expected
