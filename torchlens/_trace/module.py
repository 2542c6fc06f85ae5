"""Modules and their calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchlens._records import ModuleCallEntry
from torchlens._structure import ModuleEntry
from torchlens._trace.view import View
from torchlens._values.plain import plain
from torchlens.errors import IncompleteError, SeveralPassesError

if TYPE_CHECKING:
    import torch

    from torchlens._trace.layer import Layer
    from torchlens._trace.op import Op
    from torchlens._trace.state import Buffer, Param


class Module(View):
    """A module of the captured model, called or not."""

    __slots__ = ()

    @property
    def _entry(self) -> ModuleEntry:
        return self._reader.record.modules[self.index]

    @property
    def address(self) -> str:
        """`""` for the root; the first of several for a shared module."""
        return self._entry.addresses[0]

    @property
    def addresses(self) -> tuple[str, ...]:
        return self._entry.addresses

    @property
    def type(self) -> str:
        """The name of its class."""
        return self._entry.type_name

    @property
    def training(self) -> bool:
        """Whether it was in training mode when the capture ended."""
        return self._entry.training

    @property
    def num_calls(self) -> int:
        return len(self._reader.module_calls_of[self.index])

    @property
    def calls(self) -> Sequence[ModuleCall]:
        return self._views.module_calls(self._reader.module_calls_of[self.index])

    @property
    def ops(self) -> Sequence[Op]:
        """The ops that ran directly in it, of all its calls, in capture order."""
        calls = [at for at, c in enumerate(self._reader.record.module_calls) if c.module == self.index]
        return self._views.ops(sorted(op for call in calls for op in self._reader.ops_of_call[call]))

    @property
    def layers(self) -> Sequence[Layer]:
        """The layers of its ops."""
        layer_of = self._reader.layering.layer_of
        return self._views.layers(list(dict.fromkeys(layer_of[op.index] for op in self.ops)))

    @property
    def params(self) -> Sequence[Param]:
        """Its own parameters, without those of its children."""
        return self._views.params(self._entry.params)

    @property
    def buffers(self) -> Sequence[Buffer]:
        """Its own buffers, without those of its children."""
        return self._views.buffers(self._entry.buffers)

    @property
    def parent(self) -> Module | None:
        """The module that holds it under its first address; None for the root and for modules outside it."""
        return None if self._entry.parent is None else self._views.module(self._entry.parent)

    @property
    def children(self) -> Sequence[Module]:
        return self._views.modules(self._entry.children)

    @property
    def out(self) -> Any:
        """What the caller received, with its containers, for a module called once."""
        calls = self.calls
        if not calls:
            raise IncompleteError(
                f"{self} was not called, so it has no output; trace.module_calls lists the calls"
            )
        if len(calls) > 1:
            raise SeveralPassesError(
                f"{self} was called {len(calls)} times; ask one call, "
                f'trace.module_calls["{calls[0].label}"].output'
            )
        return calls[0].output

    @property
    def title(self) -> str:
        return self.address or self.type

    def __str__(self) -> str:
        return self.title

    def __repr__(self) -> str:
        return f"<Module {self.address!r} {self.type} {self.num_calls} calls>"


class ModuleCall(View):
    """One call of a module."""

    __slots__ = ()

    @property
    def _entry(self) -> ModuleCallEntry:
        return self._reader.record.module_calls[self.index]

    @property
    def label(self) -> str:
        """Address and number, `block:2`; `:1` for the root's first call."""
        return self._reader.call_labels[self.index]

    @property
    def number(self) -> int:
        return self._entry.number

    @property
    def module(self) -> Module:
        return self._views.module(self._entry.module)

    @property
    def parent(self) -> ModuleCall | None:
        """The call it was made in; None for a call made outside any module."""
        parent = self._entry.parent
        return self._views.module_call(parent) if parent > 0 else None

    @property
    def children(self) -> Sequence[ModuleCall]:
        """The calls made directly in it."""
        calls = self._reader.record.module_calls
        return self._views.module_calls([at for at, c in enumerate(calls) if c.parent == self.index])

    @property
    def args(self) -> tuple[Any, ...]:
        """What the caller passed, with its values then; objects that are no plain data as `Opaque`."""
        return self._read(self._entry.args, self._entry.start - 1, "an argument")

    @property
    def kwargs(self) -> Mapping[str, Any]:
        return self._read(self._entry.kwargs, self._entry.start - 1, "an argument")

    @property
    def output(self) -> Any:
        """What the caller received, its own forward hooks done, with its containers."""
        return self._read(self._entry.output, self._end - 1, "the output")

    @property
    def inputs(self) -> Sequence[Op]:
        """The ops of the tensors passed to it, flat; parameters have none."""
        return self._makers([self._entry.args, self._entry.kwargs], self._entry.start)

    @property
    def outputs(self) -> Sequence[Op]:
        """The ops of the tensors it returned, flat."""
        return self._makers(self._entry.output, self._end)

    @property
    def ops(self) -> Sequence[Op]:
        """The ops that ran in it and in no call within it."""
        return self._views.ops(self._reader.ops_of_call[self.index])

    @property
    def _end(self) -> int:
        end = self._entry.end
        if end is None:
            raise IncompleteError(f"{self.label} did not return, so it has no output; see trace.error")
        return end

    def _read(self, value: Any, row: int, what: str) -> Any:
        values = self._reader.values
        return plain(value, lambda t: values.read(t, row, after=True, what=f"{what} of {self.label}"))

    def _makers(self, value: Any, before: int) -> Sequence[Op]:
        found: list[int] = []

        def add(tensor: torch.Tensor) -> torch.Tensor:
            op = self._reader.maker_before(tensor, before)
            if op is not None:
                found.append(op)
            return tensor

        plain(value, add)
        return self._views.ops(found)

    @property
    def title(self) -> str:
        return self.label

    def __str__(self) -> str:
        return self.title

    def __repr__(self) -> str:
        return f"<ModuleCall {self.label} of {self.module.type}>"
