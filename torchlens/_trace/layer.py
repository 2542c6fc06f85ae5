"""One layer: the ops that one place in a module's code gave, pass by pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torchlens._trace.view import View
from torchlens.errors import SeveralPassesError

if TYPE_CHECKING:
    from torchlens._trace.layering import LayerEntry
    from torchlens._trace.module import Module
    from torchlens._trace.op import Op
    from torchlens._trace.state import Param

_OP_ATTRIBUTES = frozenset(
    "out shape dtype device nbytes requires_grad args kwargs buffers module_call call_site graph call_index "
    "func operation composites output_slot gradient_edge duration_ns flops macs flops_reason grad_enabled "
    "autocast context is_inplace is_boundary reads kind label pass_number spelling_known name".split()
)


class Layer(View):
    """An operation written at one place, with its passes.

    A layer of one pass also has what its op has (`layer.out`); with several passes those raise
    `SeveralPassesError` and name the passes.
    """

    __slots__ = ()

    @property
    def _entry(self) -> LayerEntry:
        return self._reader.layering.layers[self.index]

    @property
    def title(self) -> str:
        return self.layer_label

    @property
    def layer_label(self) -> str:
        """Type and number, `relu_1`."""
        return self._reader.layering.layers[self.index].label

    @property
    def type(self) -> str:
        return self._entry.type

    @property
    def func_name(self) -> str:
        """The call as the code wrote it."""
        return self._entry.func_name

    @property
    def num_passes(self) -> int:
        return len(self._entry.ops)

    @property
    def ops(self) -> Sequence[Op]:
        """The passes in order: `layer.ops[0]` is pass 1."""
        return self._views.ops(self._entry.ops)

    @property
    def params(self) -> Sequence[Param]:
        """The parameters that any pass used."""
        used = (param for op in self._entry.ops for _, param in self._reader.lineage.params[self._row(op)])
        return self._views.params(list(dict.fromkeys(used)))

    @property
    def module(self) -> Module:
        return self._views.module(self._entry.module)

    @property
    def parents(self) -> Sequence[Layer]:
        """The layers whose ops its passes read, in order of first use."""
        return self._layers(self._reader.parents)

    @property
    def children(self) -> Sequence[Layer]:
        """The layers whose ops read its passes, in order of first use."""
        return self._layers(self._reader.children)

    @property
    def is_input(self) -> bool:
        return self._kind == "input"

    @property
    def is_output(self) -> bool:
        return self._kind == "output"

    @property
    def is_buffer(self) -> bool:
        return self._kind == "buffer"

    @property
    def _kind(self) -> str:
        return self._reader.rows.kind[self._row(self._entry.ops[0])]

    def _row(self, op: int) -> int:
        return self._reader.numbers.rows[op]

    def _layers(self, neighbours: Sequence[Sequence[int]]) -> Sequence[Layer]:
        layer_of = self._reader.layering.layer_of
        found = dict.fromkeys(layer_of[other] for op in self._entry.ops for other in neighbours[op])
        return self._views.layers(list(found))

    def __getattr__(self, name: str) -> Any:
        if name not in _OP_ATTRIBUTES:
            raise AttributeError(f"a layer has no attribute {name!r}")
        if self.num_passes > 1:
            labels = [op.label for op in self.ops]
            shown = ", ".join(labels[:3]) + (f", ... {labels[-1]}" if len(labels) > 3 else "")
            raise SeveralPassesError(
                f"{self.layer_label} has {len(labels)} passes ({shown}), so it has no single {name!r}; "
                f'ask one pass, trace["{labels[0]}"].{name}'
            )
        return getattr(self.ops[0], name)

    def __str__(self) -> str:
        return str(self._reader.features.describe_layer(self))

    def _repr_html_(self) -> str:
        return self._reader.features.describe_layer(self)._repr_html_()

    def __repr__(self) -> str:
        passes = "1 pass" if self.num_passes == 1 else f"{self.num_passes} passes"
        return f"<Layer {self.layer_label} {passes}>"
