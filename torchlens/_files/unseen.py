"""Our own tensor calls, hidden from the modes that watch the model's."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

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
