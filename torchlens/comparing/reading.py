"""The value of an op, or why there is none."""

from __future__ import annotations

from torch import Tensor

from torchlens._trace.views import Views
from torchlens.errors import TorchLensError


def read(views: Views, op: int) -> Tensor | str:
    """The value of an op; where it cannot be read, the reason, with no name of the op in it."""
    view = views.op(op)
    try:
        return view.out
    except TorchLensError as error:
        return str(error).replace(f"the value of {view.label}", "the value")
