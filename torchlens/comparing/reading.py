"""The value of an op, or why there is none to compare."""

from __future__ import annotations

from typing import Final

from torch import Tensor

from torchlens._replay.reasons import gives_raw_memory
from torchlens._trace.views import Views
from torchlens.errors import TorchLensError

RAW: Final = "the value is memory that nothing had written yet"
"""Of `torch.empty` and its kin: whatever was there, which is no difference between two runs."""


def read(views: Views, op: int) -> Tensor | str:
    """The value of an op; where none can be compared, the reason, with no name of the op in it."""
    rows, row = views.reader.rows, views.reader.numbers.rows[op]
    if gives_raw_memory(rows.func[row], rows.args[row]):
        return RAW
    view = views.op(op)
    try:
        return view.out
    except TorchLensError as error:
        return str(error).replace(f"the value of {view.label}", "the value")
