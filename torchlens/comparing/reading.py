"""The values of an op in two runs, or why there are none to compare."""

from __future__ import annotations

from typing import Final

from torch import Tensor

from torchlens._replay.reasons import gives_raw_memory
from torchlens._trace.views import Views
from torchlens.errors import UnreadableError

RAW: Final = "the value is memory that nothing had written yet"
"""Of `torch.empty` and its kin: whatever was there, which is no difference between two runs."""


def read_pair(
    a: Views, b: Views, ours: int, theirs: int, names: tuple[str, str]
) -> tuple[Tensor, Tensor] | str:
    """The values of an op of each run; where one has none that can be compared, the reason, with its run."""
    one, other = _read(a, ours), _read(b, theirs)
    if isinstance(one, str):
        return one if one == RAW else f"{names[0]}: {one}"
    if isinstance(other, str):
        return other if other == RAW else f"{names[1]}: {other}"
    return one, other


def _read(views: Views, op: int) -> Tensor | str:
    """The value of an op, or the reason, with no name of the op in it."""
    rows, row = views.reader.rows, views.reader.numbers.rows[op]
    if gives_raw_memory(rows.func[row], rows.args[row]):
        return RAW
    view = views.op(op)
    try:
        return view.out
    except UnreadableError as error:  # a damaged file is an error, not a reason
        return str(error).replace(f"the value of {view.label}", "the value")
