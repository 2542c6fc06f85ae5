"""One op: a tensor that a call gave, what it was computed from, and where."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torchlens._keys.chains import Frame
from torchlens._keys.names import operation_of
from torchlens._records import Context, Kind
from torchlens._trace.reference import referenced
from torchlens._trace.view import View
from torchlens._values.geometry import bytes_of, dtype_name, shape_of
from torchlens._values.ghost import Recorded

if TYPE_CHECKING:
    import torch
    from torch.autograd.graph import GradientEdge

    from torchlens._trace.layer import Layer
    from torchlens._trace.module import Module, ModuleCall
    from torchlens._trace.state import Buffer, Param


@dataclass(frozen=True, slots=True)
class GraphPosition:
    """Where an op stands, told without the code: the same whichever grouping ran."""

    site_key: str
    """`module address/op type/output slot/ordinal within the module call`."""


class Op(View):
    """A tensor that entered or left a call during the capture.

    Attributes that a kind of op does not have are None (`duration_ns` of an input); a value that was
    overwritten and not kept raises `OverwrittenError`.
    """

    __slots__ = ()

    @property
    def _row(self) -> int:
        return self._reader.numbers.rows[self.index]

    @property
    def title(self) -> str:
        return self.label

    @property
    def label(self) -> str:
        """Layer label and pass number, `relu_1:1`."""
        return self._reader.op_labels[self.index]

    @property
    def layer(self) -> Layer:
        return self._views.layer(self._reader.layering.layer_of[self.index])

    @property
    def pass_number(self) -> int:
        """1 for the layer's first pass."""
        return self._reader.layering.pass_of[self.index]

    @property
    def call_index(self) -> int:
        """Number of the call; all outputs of one call share it."""
        return self._row

    @property
    def kind(self) -> Kind:
        return self._reader.rows.kind[self._row]

    @property
    def type(self) -> str:
        return self._reader.layering.layers[self._reader.layering.layer_of[self.index]].type

    @property
    def func_name(self) -> str:
        """The call as the code wrote it: `linear`, `add_`, `__add__` for `x + 1`."""
        return self._reader.layering.layers[self._reader.layering.layer_of[self.index]].func_name

    @property
    def spelling_known(self) -> bool:
        """Whether `x + 1` could be told from `1 + x`; if not, `func_name` is the plain name."""
        return self._reader.is_spelling_known(self._row)

    @property
    def operation(self) -> str:
        """Torch's own name: `add` for `+`, `+=`, `add_` and `1 + x` alike."""
        if self.kind not in ("call", "boundary"):
            return self.kind
        return operation_of(self._reader.name(self._row))

    @property
    def scopes(self) -> frozenset[str]:
        """The addresses of the modules in whose calls it ran; `""`, the root, is always one."""
        return self._reader.scopes(self._reader.rows.call[self._row])

    def is_output_of(self, address: str) -> bool:
        """Whether a module (`"fc"`) or one of its calls (`"fc:1"`) gave it to its caller."""
        return self.index in self._reader.outputs_of.get(address, ())

    def ask(self, predicate: Callable[[Any], object]) -> bool:
        """What a predicate says of the op."""
        return bool(predicate(self))

    @property
    def func(self) -> Callable[..., Any] | None:
        """The torch function; None for what is no call, and for boundary ops that have no function.

        Of a loaded trace, `UnsavedFunctionError` where it is none of torch's own.
        """
        func = self._reader.func(self._row)
        return None if isinstance(func, str) else func

    @property
    def name(self) -> str | None:
        """What it goes by outside of the trace, as Python spells it; None for other kinds.

        Of an input the parameter it came through and the path from there, `x`, `batch["image"]`, `pair[1]`;
        `args[0]` where the parameter is not known; the first of several places. Of an output the path in what
        the root call returned: a field by its name (`logits`, `cache[0][1]`), an item by its key or number
        (`["loss"]`, `[1]`); None for a tensor that was returned by itself, whose label says all. Of a source
        the name it was found under, of a buffer version the buffer's address.
        """
        return self._reader.given_name(self._row)

    @property
    def output_slot(self) -> int:
        """Which of the call's output tensors this is, from 0."""
        return self._reader.numbers.slots[self.index]

    @property
    def composites(self) -> tuple[str, ...]:
        """The Python-written torch functions the call was reached through, outermost first."""
        return self._reader.composites(self._row)

    @property
    def _tensor(self) -> Recorded:
        return self._reader.tensor(self._row, self.output_slot)

    @property
    def _seen(self) -> Recorded:
        """The tensor with the geometry it had then; its elements may be newer."""
        return self._reader.values.geometry(self._tensor, self._row, after=True)

    @property
    def out(self) -> torch.Tensor:
        """The value right after the call, whatever was written in place later."""
        return self._reader.values.read(self._tensor, self._row, after=True, what=self.label)

    @property
    def shape(self) -> tuple[int, ...]:
        return shape_of(self._seen)

    @property
    def dtype(self) -> torch.dtype:
        return self._seen.dtype

    @property
    def device(self) -> torch.device:
        return self._reader.values.device(self._seen)

    @property
    def nbytes(self) -> int:
        """Elements times element size; views count as if they were copies."""
        return bytes_of(self._seen)

    @property
    def requires_grad(self) -> bool:
        return self._reader.values.requires_grad(self._tensor, self._row)

    @property
    def args(self) -> tuple[Any, ...]:
        """Positional arguments; each tensor as a `TensorRef`, which names its op and reads its value."""
        args = self._reader.rows.args[self._row]
        return tuple(referenced(self._views, self.index, value, str(at)) for at, value in enumerate(args))

    @property
    def kwargs(self) -> Mapping[str, Any]:
        kwargs = self._reader.rows.kwargs[self._row] or {}
        return {k: referenced(self._views, self.index, v, k) for k, v in kwargs.items()}

    @property
    def parents(self) -> Sequence[Op]:
        """The ops whose data this one read, each once, in order of first use."""
        return self._views.ops(self._reader.parents[self.index])

    @property
    def children(self) -> Sequence[Op]:
        """The ops that read this one's data, in capture order."""
        return self._views.ops(self._reader.children[self.index])

    @property
    def params(self) -> Sequence[Param]:
        used = dict.fromkeys(param for _, param in self._reader.lineage.params[self._row])
        return self._views.params(list(used))

    @property
    def buffers(self) -> Sequence[Buffer]:
        """The buffers whose versions this op read."""
        reader = self._reader
        rows = (reader.numbers.rows[parent] for parent in reader.parents[self.index])
        used = dict.fromkeys(reader.buffer_of_row[row] for row in rows if row in reader.buffer_of_row)
        return self._views.buffers(list(used))

    @property
    def module(self) -> Module:
        """The innermost module that was running; the root outside any."""
        call = self._reader.record.module_calls[self._reader.rows.call[self._row]]
        return self._views.module(call.module)

    @property
    def module_call(self) -> ModuleCall | None:
        """The innermost module call that was running; None outside any."""
        call = self._reader.rows.call[self._row]
        return self._views.module_call(call) if call else None

    @property
    def call_site(self) -> tuple[Frame, ...]:
        """The frames from the module's forward down to the call, outermost first; may be empty."""
        return self._reader.frames(self._row)

    @property
    def graph(self) -> GraphPosition:
        return GraphPosition(self._reader.site_keys[self.index])

    @property
    def gradient_edge(self) -> GradientEdge | None:
        """The value's place in autograd's graph, for `torch.autograd.grad`; None if it needs no gradient."""
        return self._reader.values.gradient_edge(self._tensor, self._row, what=self.label)

    @property
    def duration_ns(self) -> int | None:
        """Nanoseconds of the call, on its first output; None on the others and on what is no call."""
        return self._reader.duration_of_op(self.index)

    @property
    def flops(self) -> int | None:
        """Floating-point operations of the call, 2 for a multiply-add; None with `flops_reason`."""
        return self._reader.cost_of_op(self.index).flops

    @property
    def macs(self) -> int | None:
        """Multiply-adds of the call."""
        return self._reader.cost_of_op(self.index).macs

    @property
    def flops_reason(self) -> str | None:
        """Why `flops` is None."""
        return self._reader.cost_of_op(self.index).reason

    @property
    def context(self) -> Context:
        """Grad mode, autocast and defaults that the call ran under."""
        return self._reader.record.contexts[self._reader.rows.context[self._row]]

    @property
    def grad_enabled(self) -> bool:
        return self.context.grad_enabled

    @property
    def autocast(self) -> Mapping[str, str]:
        """Device type to dtype, for the devices autocast was on for."""
        return self.context.autocast

    @property
    def is_inplace(self) -> bool:
        """Whether the call wrote into this tensor rather than making it."""
        return self._reader.values.wrote(self._row, self.output_slot)

    @property
    def is_boundary(self) -> bool:
        return self.kind == "boundary"

    @property
    def reads(self) -> tuple[str, ...]:
        """Where the value left for Python: `item`, `__bool__`, `numpy` and their kin, in order."""
        return tuple(self._reader.reads_of_op.get(self.index, ()))

    def __str__(self) -> str:
        return str(self._reader.features.describe_op(self))

    def _repr_html_(self) -> str:
        return self._reader.features.describe_op(self)._repr_html_()

    def __repr__(self) -> str:
        return f"<Op {self.label} {self.shape} {dtype_name(self.dtype)}>"
