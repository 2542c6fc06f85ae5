"""Parameters and buffers, by address."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchlens._trace.view import View

if TYPE_CHECKING:
    import torch

    from torchlens._trace.op import Op


class Param(View):
    """A parameter of the model. Ties are one parameter with several addresses."""

    __slots__ = ()

    @property
    def address(self) -> str:
        return self.addresses[0]

    @property
    def addresses(self) -> tuple[str, ...]:
        return self._reader.record.params[self.index].addresses

    @property
    def _tensor(self) -> torch.Tensor:
        return self._reader.record.params[self.index].tensor

    @property
    def value(self) -> torch.Tensor:
        """The parameter itself, by reference: it shows what it holds now.

        A loaded trace has it only if it was saved with `params=True`, else `MissingValueError` is raised.
        """
        values, tensor = self._reader.values, self._tensor
        values.check_there(tensor, self.address)
        values.check_bytes(tensor, self.address)
        return tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._tensor.shape)

    @property
    def dtype(self) -> torch.dtype:
        return self._tensor.dtype

    @property
    def numel(self) -> int:
        return self._tensor.numel()

    @property
    def nbytes(self) -> int:
        return self._tensor.nbytes

    @property
    def trainable(self) -> bool:
        return self._tensor.requires_grad

    @property
    def ops(self) -> Sequence[Op]:
        """The ops that used it, in capture order."""
        return self._views.ops(self._reader.ops_of_param[self.index])

    @property
    def title(self) -> str:
        return self.address

    def __str__(self) -> str:
        return self.title

    def __repr__(self) -> str:
        return f"<Param {self.address} {self.shape}>"


class Buffer(View):
    """A buffer of the model and the versions it had."""

    __slots__ = ()

    @property
    def address(self) -> str:
        return self.addresses[0]

    @property
    def addresses(self) -> tuple[str, ...]:
        return self._reader.record.buffers[self.index].addresses

    @property
    def persistent(self) -> bool:
        return self._reader.record.buffers[self.index].persistent

    @property
    def versions(self) -> Sequence[Op]:
        """Its versions as ops, the starting value first; empty when nothing read or wrote it."""
        first = self._reader.numbers.first
        return self._views.ops([first[row] for row in self._reader.record.buffers[self.index].rows])

    @property
    def initial_value(self) -> torch.Tensor | None:
        """Its value when the capture began; None for a buffer that held none."""
        tensor = self._reader.record.buffers[self.index].initial
        what = f"the initial value of {self.address}"
        return None if tensor is None else self._reader.values.read(tensor, -1, after=True, what=what)

    @property
    def final_value(self) -> torch.Tensor | None:
        """Its value when the capture ended; None for a buffer that held none."""
        tensor = self._reader.record.buffers[self.index].final
        last = len(self._reader.rows) - 1
        what = f"the final value of {self.address}"
        return None if tensor is None else self._reader.values.read(tensor, last, after=True, what=what)

    @property
    def title(self) -> str:
        return self.address

    def __str__(self) -> str:
        return self.title

    def __repr__(self) -> str:
        return f"<Buffer {self.address} {len(self.versions)} versions>"
