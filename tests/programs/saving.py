"""What must hold between a trace that keeps all values and one of the same run that keeps some."""

from __future__ import annotations

from typing import Any

import torchlens as tl
from tests.programs.last_writers import equal_bits
from torchlens._terms import ModuleOutput
from torchlens._trace.reference import references_in


def facts_of_op(op: Any) -> dict[str, Any]:
    """All that is to be known of an op without its value."""
    references = list(references_in([op.args, op.kwargs]))
    return {
        "label": op.label,
        "names": (op.kind, op.func_name, op.type, op.operation, op.composites, op.spelling_known),
        "parents": [parent.label for parent in op.parents],
        "children": [child.label for child in op.children],
        "params": [param.address for param in op.params],
        "buffers": [buffer.address for buffer in op.buffers],
        "look": (op.shape, op.dtype, op.device, op.nbytes, op.requires_grad),
        "arguments": [(ref.position, ref.label, ref.shape, ref.dtype) for ref in references],
        "place": (op.call_site, op.module.address, op.module_call and op.module_call.label, op.scopes),
        "cost": (op.flops, op.macs, op.flops_reason),
        "mode": (op.grad_enabled, op.autocast, op.is_inplace, op.reads, op.output_slot, op.call_index),
    }


def facts_of(trace: Any) -> dict[str, Any]:
    calls = trace.module_calls
    return {
        "layers": [(layer.layer_label, layer.num_passes) for layer in trace.layers],
        "calls": [(c.label, [op.label for op in c.ops]) for c in calls],
        "flows": [([op.label for op in c.inputs], [op.label for op in c.outputs]) for c in calls],
        "buffers": [(b.address, [op.label for op in b.versions]) for b in trace.buffers],
        "provenance": (trace.provenance.verified, trace.provenance.verification_reason),
        "ends": ([op.label for op in trace.inputs], [op.label for op in trace.outputs]),
        "notes": [note for note in trace.notes if "meant no op" not in note],
    }


def assert_same_facts(found: Any, full: Any) -> None:
    """The graph and all metadata are complete whatever is kept."""
    assert facts_of(found) == facts_of(full)
    for one, other in zip(found.ops, full.ops, strict=True):
        assert facts_of_op(one) == facts_of_op(other), one.label


def kept_labels(trace: Any) -> set[str]:
    """The ops whose value can be read."""
    return {op.label for op in trace.ops if is_kept(op)}


def is_kept(op: Any) -> bool:
    try:
        _ = op.out
    except tl.errors.NotSavedError:
        return False
    except tl.errors.OverwrittenError:  # it was, but something was written over it before or since
        return True
    return True


def always_kept(trace: Any) -> set[str]:
    """What the model returned, with the ops that gave it; and parameters, which are no op's to keep."""
    reader = trace._reader
    held = {id(reader.tensor(row, 0)) for row in reader.record.outputs}
    held |= {id(param.value) for param in trace.params}
    return {op.label for op in trace.ops if id(reader.tensor(op.call_index, op.output_slot)) in held}


def assert_kept(found: Any, full: Any, selector: tl.selectors.Selector) -> None:
    """Exactly the ops that the selector means on the full trace are kept, with their values."""
    meant = {op.label for op in full.select(selector)}
    kept = kept_labels(found)
    assert meant <= kept, meant - kept
    assert kept <= meant | always_kept(found), kept - meant
    late = any(isinstance(each, ModuleOutput) for each in selector.simple())
    for label in meant:
        assert_same_value(found.ops[label], full.ops[label], late=late)


def assert_same_value(one: Any, other: Any, *, late: bool) -> None:
    """What is kept only when a module returns may have been overwritten by then; it is never wrong."""
    try:
        expected = other.out
        value = one.out
    except tl.errors.OverwrittenError:
        assert late or one.label.startswith(("buffer", "input")), one.label
        return
    assert equal_bits(value, expected), one.label
