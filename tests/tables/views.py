"""What the tables of a trace must hold, told cell by cell by the views of the same trace."""

from __future__ import annotations

from typing import Any

from torchlens.errors import IncompleteError

Row = dict[str, Any]


def ops(trace: Any) -> list[Row]:
    sites = numbered_sites(trace)
    return [
        {
            "index": op.index,
            "label": op.label,
            "layer": op.layer.layer_label,
            "pass_number": op.pass_number,
            "call_index": op.call_index,
            "output_slot": op.output_slot,
            "kind": op.kind,
            "type": op.type,
            "func_name": op.func_name,
            "spelling_known": op.spelling_known,
            "operation": op.operation,
            "name": op.name,
            "composites": list(op.composites),
            **look(op),
            "nbytes": op.nbytes,
            "requires_grad": op.requires_grad,
            "is_inplace": op.is_inplace,
            "module": op.module.address,
            "module_call": None if op.module_call is None else op.module_call.label,
            "call_site": sites.get(op.call_site),
            **user_line(op),
            "site_key": op.graph.site_key,
            "parents": labels(op.parents),
            "params": addresses(op.params),
            "buffers": addresses(op.buffers),
            "reads": list(op.reads),
            "duration_ns": op.duration_ns,
            **cost(op),
            "grad_enabled": op.grad_enabled,
            "autocast": ", ".join(f"{device}: {dtype}" for device, dtype in op.autocast.items()) or None,
        }
        for op in trace.ops
    ]


def layers(trace: Any) -> list[Row]:
    return [
        {
            "index": layer.index,
            "layer_label": layer.layer_label,
            "kind": layer.ops[0].kind,
            "type": layer.type,
            "func_name": layer.func_name,
            "operation": layer.ops[0].operation,
            "num_passes": layer.num_passes,
            "output_slot": layer.ops[0].output_slot,
            **{
                name: cells[0] if all(cell == cells[0] for cell in cells) else None
                for name, cells in columns([look(op) for op in layer.ops]).items()
            },
            "nbytes": sum(op.nbytes for op in layer.ops),
            "module": layer.module.address,
            **user_line(layer.ops[0]),
            "parents": [parent.layer_label for parent in layer.parents],
            "children": [child.layer_label for child in layer.children],
            "params": addresses(layer.params),
            "duration_ns": sum_of([op.duration_ns for op in layer.ops]),
            "flops": sum_of([op.flops for op in layer.ops]),
            "macs": sum_of([op.macs for op in layer.ops]),
            "flops_reason": next((op.flops_reason for op in layer.ops if op.flops is None), None),
        }
        for layer in trace.layers
    ]


def edges(trace: Any) -> list[Row]:
    return [
        {
            "parent": parent.label,
            "child": child.label,
            "parent_index": parent.index,
            "child_index": child.index,
            "positions": list(trace.graph.edges[parent.label, child.label]["positions"]),
            "host": trace.graph.edges[parent.label, child.label]["host"],
        }
        for child in trace.ops
        for parent in child.parents
    ]


def modules(trace: Any) -> list[Row]:
    return [
        {
            "index": at,
            "address": module.address,
            "addresses": list(module.addresses),
            "type": module.type,
            "parent": None if module.parent is None else module.parent.address,
            "training": module.training,
            "num_calls": module.num_calls,
            "num_ops": len(module.ops),
            "params": addresses(module.params),
            "buffers": addresses(module.buffers),
        }
        for at, module in enumerate(trace.modules)
    ]


def module_calls(trace: Any) -> list[Row]:
    return [
        {
            "index": at,
            "label": call.label,
            "module": call.module.address,
            "number": call.number,
            "parent": None if call.parent is None else call.parent.label,
            "returned": returned(call),
            "num_ops": len(call.ops),
            "inputs": labels(call.inputs),
            "outputs": labels(call.outputs) if returned(call) else None,
        }
        for at, call in enumerate(trace.module_calls)
    ]


def params(trace: Any) -> list[Row]:
    return [
        {
            "index": at,
            "address": param.address,
            "addresses": list(param.addresses),
            "shape": list(param.shape),
            "dtype": str(param.dtype).removeprefix("torch."),
            "device": str(param.value.device),
            "numel": param.numel,
            "nbytes": param.nbytes,
            "trainable": param.trainable,
            "ops": labels(param.ops),
        }
        for at, param in enumerate(trace.params)
    ]


def buffers(trace: Any) -> list[Row]:
    rows = []
    for at, buffer in enumerate(trace.buffers):
        initial = buffer.initial_value
        row = {"index": at, "address": buffer.address, "addresses": list(buffer.addresses)}
        row |= {"persistent": buffer.persistent, "versions": labels(buffer.versions)}
        if initial is None:
            row |= dict.fromkeys(("shape", "dtype", "device", "nbytes"))
        else:
            row |= {**look(initial), "nbytes": initial.nbytes}
        rows.append(row)
    return rows


def frames(trace: Any) -> list[Row]:
    return [
        {
            "call_site": number,
            "depth": depth,
            "file": frame.file,
            "function": frame.function,
            "line": frame.line,
            "end_line": frame.end_line,
            "column": frame.column,
            "end_column": frame.end_column,
            "in_torch": is_torchs(frame),
        }
        for site, number in numbered_sites(trace).items()
        for depth, frame in enumerate(site)
    ]


def numbered_sites(trace: Any) -> dict[Any, int]:
    """Call sites in the order of their first ops; where two have the same frames, they differ elsewhere."""
    sites: dict[Any, int] = {}
    for op in trace.ops:
        if op.call_site:
            sites.setdefault(op.call_site, len(sites))
    return sites


def look(value: Any) -> Row:
    return {
        "shape": list(value.shape),
        "dtype": str(value.dtype).removeprefix("torch."),
        "device": str(value.device),
    }


def cost(op: Any) -> Row:
    return {"flops": op.flops, "macs": op.macs, "flops_reason": op.flops_reason}


def user_line(op: Any) -> Row:
    frame = next((frame for frame in reversed(op.call_site) if not is_torchs(frame)), None)
    return {"file": None, "line": None} if frame is None else {"file": frame.file, "line": frame.line}


def is_torchs(frame: Any) -> bool:
    return "/site-packages/torch/" in frame.file.replace("\\", "/")


def returned(call: Any) -> bool:
    try:
        call.outputs
    except IncompleteError:
        return False
    return True


def sum_of(numbers: list[int | None]) -> int | None:
    return None if None in numbers else sum(numbers)


def columns(rows: list[Row]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


def labels(found: Any) -> list[str]:
    return [each.label for each in found]


def addresses(found: Any) -> list[str]:
    return [each.address for each in found]
