"""One op or one layer, with all that is known about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.text import Text

from torchlens._trace.layer import Layer
from torchlens._trace.module import ModuleCall
from torchlens._trace.op import Op
from torchlens.errors import UnreadableError
from torchlens.report.amounts import duration, listed, quantity, shape_text, short_count
from torchlens.report.calls import reached, where
from torchlens.report.sizes import look_text, shape_of
from torchlens.report.source_lines import frame_text
from torchlens.report.text import Printable, Symbols, fact_grid

_MOST_NAMES = 6
_MOST_PASSES = 8
_LONGEST_ARGUMENTS = 200


@dataclass(frozen=True, repr=False)
class Details(Printable):
    """Facts about one thing, under its name."""

    name: str
    about: str
    facts: tuple[tuple[str, str], ...]

    def parts(self, width: int, symbols: Symbols) -> Iterator[RenderableType]:
        """The name and the facts."""
        yield Text.assemble((self.name, "bold green"), symbols.put(f" · {self.about}"))
        yield fact_grid(self.facts, symbols)


def op_details(op: Op) -> Details:
    """Where an op stands in the code, what it read, what it gave and what it cost."""
    layer = op.layer
    passes = f"pass {op.pass_number} of {layer.num_passes}" if layer.num_passes > 1 else "one pass"
    return Details(op.label, f"{op.kind}, {passes}", tuple(_op_facts(op)))


def layer_details(layer: Layer) -> Details:
    """Where a layer stands in the code, and its passes."""
    first = layer.ops[0]
    about = f"layer, {quantity(layer.num_passes, 'pass', 'passes')}"
    if layer.num_passes == 1:
        return Details(layer.layer_label, about, tuple(_op_facts(first)))
    facts = [*_origin(first, whole_layer=True), *_passes(layer)]
    facts += _named("parameters", (f"{param.address} {shape_text(param.shape)}" for param in layer.params))
    facts += _named("parents", (parent.layer_label for parent in layer.parents))
    facts += _named("children", (child.layer_label for child in layer.children))
    return Details(layer.layer_label, about, tuple(facts))


def _op_facts(op: Op) -> Iterator[tuple[str, str]]:
    yield from _origin(op)
    yield "value", _value(op)
    if op.kind in ("call", "boundary"):
        yield "arguments", _arguments(op)
    yield from _named("parents", (parent.label for parent in op.parents))
    yield from _named("children", (child.label for child in op.children))
    yield from _named("parameters", (f"{param.address} {shape_text(param.shape)}" for param in op.params))
    yield from _named("buffers", (buffer.address for buffer in op.buffers))
    yield from _named("read as", op.reads)
    if op.kind in ("call", "boundary"):
        yield "cost", _cost(op)


def _origin(op: Op, *, whole_layer: bool = False) -> Iterator[tuple[str, str]]:
    if op.kind in ("call", "boundary"):
        swapped = "" if op.spelling_known else ", or with its operands swapped"
        yield "function", reached(op.func_name, op.composites) + swapped
    elif op.name is not None:
        yield "name", op.name
    if op.module_call is not None:
        yield "module", _module(op, op.module_call, whole_layer=whole_layer)
    for at, frame in enumerate(op.call_site):
        yield "" if at else "called at", frame_text(frame)


def _module(op: Op, call: ModuleCall, *, whole_layer: bool) -> str:
    module = op.module
    if module.address:
        return where(module.address if whole_layer else call.label, module.type)
    number = f", call {call.label}" if module.num_calls > 1 and not whole_layer else ""
    return where("", module.type) + number


def _value(op: Op) -> str:
    seen = op._seen
    text = f"{look_text(seen)} {op.device}"
    try:
        text += ", requires grad" if op.requires_grad else ""
        _ = op.out
    except UnreadableError as error:
        return f"{text}; {error}"
    return f"{text}, written in place" if op.is_inplace else text


def _arguments(op: Op) -> str:
    shown = [repr(value) for value in op.args] + [f"{key}={value!r}" for key, value in op.kwargs.items()]
    text = f"({', '.join(shown)})"
    return text if len(text) <= _LONGEST_ARGUMENTS else text[: _LONGEST_ARGUMENTS - 2] + "…)"


def _cost(op: Op) -> str:
    flops = (
        f"{short_count(op.flops)} FLOPs" if op.flops is not None else f"FLOPs not known: {op.flops_reason}"
    )
    return flops if op.duration_ns is None else f"{duration(op.duration_ns)}, {flops}"


def _named(name: str, names: Iterable[str]) -> Sequence[tuple[str, str]]:
    found = list(names)
    return [(name, listed(found, _MOST_NAMES))] if found else []


def _passes(layer: Layer) -> Iterator[tuple[str, str]]:
    for at, op in enumerate(layer.ops[:_MOST_PASSES]):
        parents = ", ".join(parent.label for parent in op.parents)
        took = "" if op.duration_ns is None else f", {duration(op.duration_ns)}"
        yield (
            "" if at else "passes",
            f"{op.label} {shape_text(shape_of(op._seen))} from {parents or 'nothing'}{took}",
        )
    if layer.num_passes > _MOST_PASSES:
        yield "", f"and {layer.num_passes - _MOST_PASSES} more"
