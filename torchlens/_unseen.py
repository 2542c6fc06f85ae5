"""Our own tensor calls, hidden from whoever watches the user's."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes


@contextmanager
def unseen() -> Generator[None]:
    """Run the body so that no function mode, dispatch mode or tensor subclass sees its calls."""
    with torch._C.DisableTorchFunction():
        if torch._C._len_torch_dispatch_stack():
            with _disable_current_modes():
                yield
        else:
            yield


@contextmanager
def modes_off() -> Generator[None]:
    """Run the body without the modes that are on; tensor subclasses still answer for themselves."""
    taken: list[Any] = []
    try:
        while torch._C._len_torch_function_stack():
            taken.append(torch._C._pop_torch_function_stack())
        with _disable_current_modes():
            yield
    finally:
        for mode in reversed(taken):
            torch._C._push_on_torch_function_stack(mode)
