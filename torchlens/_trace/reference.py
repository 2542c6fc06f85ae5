"""A tensor argument of a call: which op, parameter or buffer it came from, and its value then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from torchlens._values.geometry import shape_of
from torchlens._values.ghost import Recorded
from torchlens._values.store import is_tensor

if TYPE_CHECKING:
    import torch

    from torchlens._trace.op import Op
    from torchlens._trace.state import Buffer, Param
    from torchlens._trace.views import Views


class TensorRef:
    """A tensor as an argument: what it refers to, and the value it had when the call read it."""

    __slots__ = ("_row", "_tensor", "_views", "ops", "param", "position")

    def __init__(self, views: Views, op: int, position: str, tensor: Recorded) -> None:
        reader = views.reader
        self._views = views
        self._row = reader.numbers.rows[op]
        self._tensor = tensor
        self.position = position
        """`"0"`, `"1.2"` for an item of a list, a keyword by its name."""
        behind = [parent for at, parent in reader.lineage.parents[op] if at == position]
        self.ops: tuple[Op, ...] = tuple(map(views.op, behind))
        """The ops that last wrote the elements read, oldest first; empty for a parameter nothing wrote."""
        found = dict(reader.lineage.params[self._row]).get(position)
        self.param: Param | None = None if found is None else views.param(found)

    @property
    def op(self) -> Op | None:
        """The newest op behind the tensor; None for a parameter that nothing wrote."""
        return self.ops[-1] if self.ops else None

    @property
    def buffer(self) -> Buffer | None:
        """The buffer whose version this is."""
        reader = self._views.reader
        rows = (reader.numbers.rows[op.index] for op in self.ops)
        found = next((reader.buffer_of_row[row] for row in rows if row in reader.buffer_of_row), None)
        return None if found is None else self._views.buffer(found)

    @property
    def label(self) -> str:
        """Label of the op, or address of the parameter."""
        if self.op is not None:
            return self.op.label
        return self.param.address if self.param is not None else "unknown"

    @property
    def out(self) -> torch.Tensor:
        """The value as the call read it, before anything the call wrote."""
        unwritten = self.param if not self.ops else None
        what = f"argument {self.position} of call {self._row}" if unwritten is None else unwritten.address
        return self._views.reader.values.read(self._tensor, self._row, after=False, what=what)

    @property
    def shape(self) -> tuple[int, ...]:
        return shape_of(self._views.reader.values.geometry(self._tensor, self._row, after=False))

    @property
    def dtype(self) -> torch.dtype:
        return self._tensor.dtype

    def __repr__(self) -> str:
        return self.label


def referenced(views: Views, op: int, value: Any, position: str) -> Any:
    """Recorded arguments with each tensor replaced by its `TensorRef`."""
    if is_tensor(value):
        return TensorRef(views, op, position, value)
    kind = cast("type[Any]", type(value))
    if isinstance(value, (tuple, list)):
        items = cast("list[Any]", value)
        made = [referenced(views, op, item, f"{position}.{at}") for at, item in enumerate(items)]
        return kind(*made) if hasattr(kind, "_fields") else kind(made)
    if isinstance(value, dict):
        entries = cast("dict[Any, Any]", value).items()
        return {key: referenced(views, op, item, f"{position}.{key}") for key, item in entries}
    if isinstance(value, slice):
        bounds = cast("slice[Any, Any, Any]", value)
        parts = (("start", bounds.start), ("stop", bounds.stop), ("step", bounds.step))
        return slice(*(referenced(views, op, part, f"{position}.{name}") for name, part in parts))
    return value


def references_in(value: Any) -> Iterator[TensorRef]:
    """The `TensorRef`s in nested arguments, in order."""
    if isinstance(value, TensorRef):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in cast("list[Any]", value):
            yield from references_in(item)
    elif isinstance(value, dict):
        for item in cast("dict[Any, Any]", value).values():
            yield from references_in(item)
