"""Makes the views of one trace. The only file that knows all their classes."""

from __future__ import annotations

from collections.abc import Sequence

from torchlens._trace.layer import Layer
from torchlens._trace.lookup import Named
from torchlens._trace.module import Module, ModuleCall
from torchlens._trace.op import Op
from torchlens._trace.reader import TraceReader
from torchlens._trace.state import Buffer, Param


class Views:
    """Makes ops, layers, modules, parameters and buffers from their indices; holds none of them."""

    def __init__(self, reader: TraceReader) -> None:
        self.reader = reader

    def op(self, index: int) -> Op:
        return Op(self, index)

    def layer(self, index: int) -> Layer:
        return Layer(self, index)

    def module(self, index: int) -> Module:
        return Module(self, index)

    def module_call(self, index: int) -> ModuleCall:
        return ModuleCall(self, index)

    def param(self, index: int) -> Param:
        return Param(self, index)

    def buffer(self, index: int) -> Buffer:
        return Buffer(self, index)

    def every_op(self) -> Named[Op]:
        return self.ops(range(len(self.reader.numbers.rows)))

    def ops(self, indices: Sequence[int]) -> Named[Op]:
        return Named(indices, self.op, lambda: self.reader.op_index, "op")

    def layers(self, indices: Sequence[int]) -> Named[Layer]:
        return Named(indices, self.layer, lambda: self.reader.layer_index, "layer")

    def modules(self, indices: Sequence[int]) -> Named[Module]:
        return Named(indices, self.module, lambda: self.reader.module_index, "module")

    def module_calls(self, indices: Sequence[int]) -> Named[ModuleCall]:
        return Named(indices, self.module_call, lambda: self.reader.call_index, "module call")

    def params(self, indices: Sequence[int]) -> Named[Param]:
        return Named(indices, self.param, lambda: self.reader.param_index, "parameter")

    def buffers(self, indices: Sequence[int]) -> Named[Buffer]:
        return Named(indices, self.buffer, lambda: self.reader.buffer_index, "buffer")
