"""The totals of a trace: ops, modules, parameters, FLOPs, time and memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from torchlens._keys.names import operation_of
from torchlens._records import Record
from torchlens._trace.reader import TraceReader
from torchlens.report.amounts import byte_count, duration, listed, quantity, spaced_count
from torchlens.report.memory import held_storages
from torchlens.report.sizes import numel

_NUMBER = re.compile(r"(?:^|(?<=\.))\d+(?=\.|$)")


def totals(reader: TraceReader) -> Iterator[tuple[str, str]]:
    """Name and text of each total."""
    layering = reader.layering
    yield "ops", f"{quantity(len(layering.layer_of), 'op')} in {quantity(len(layering.layers), 'layer')}"
    yield "modules", _modules(reader)
    yield "parameters", _parameters(reader.record)
    if reader.record.buffers:
        yield "buffers", _buffers(reader.record)
    yield "FLOPs", _flops(reader)
    yield "time", _time(reader)
    yield "values", _values(reader)
    if reader.values.copied_bytes:
        yield "copies", f"{byte_count(reader.values.copied_bytes)} saved before in-place writes"


def _modules(reader: TraceReader) -> str:
    called = sum(map(bool, reader.module_calls_of))
    text = f"{quantity(len(reader.record.module_calls) - 1, 'call')} of {quantity(called, 'module')}"
    unreached = _unreached(reader)
    if not unreached:
        return text
    modules = map(reader.record.modules.__getitem__, unreached)
    alike = Counter((_NUMBER.sub("*", entry.addresses[0]), entry.type_name) for entry in modules)
    names = [f"{address} ({f'{n} × ' if n > 1 else ''}{kind})" for (address, kind), n in alike.items()]
    return f"{text}; not reached: {listed(names)}"


def _unreached(reader: TraceReader) -> list[int]:
    """The outermost modules of which nothing was called and no parameter was used."""
    modules = reader.record.modules
    reached: dict[int, bool] = {}
    for at in reversed(range(len(modules))):  # children follow their parents
        used = any(reader.ops_of_param[param] for param in modules[at].params)
        inside = any(reached.get(child, False) for child in modules[at].children)
        reached[at] = used or inside or bool(reader.module_calls_of[at])
    outer = [at for at, entry in enumerate(modules) if entry.parent is None or reached[entry.parent]]
    return [at for at in outer if at and not reached[at] and modules[at].in_model]


def _parameters(record: Record) -> str:
    sizes = {at: numel(entry.tensor) for at, entry in enumerate(record.params)}
    known = {at: size for at, size in sizes.items() if size is not None}
    total = sum(known.values())
    trainable = sum(size for at, size in known.items() if record.params[at].tensor.requires_grad)
    parts = [f"{total:,}"]
    if total:
        parts.append("all trainable" if trainable == total else f"{trainable:,} trainable")
        parts.append(
            byte_count(sum(size * record.params[at].tensor.element_size() for at, size in known.items()))
        )
    several = sum(len(entry.addresses) > 1 for entry in record.params)
    if several:
        parts.append(f"{quantity(several, 'tensor')} under several addresses counted once")
    if len(known) < len(sizes):
        parts.append(f"{quantity(len(sizes) - len(known), 'tensor')} not initialised")
    return ", ".join(parts)


def _buffers(record: Record) -> str:
    reached = sum(bool(entry.rows) for entry in record.buffers)
    written = sum(bool(record.rows.args[row]) for entry in record.buffers for row in entry.rows)
    text = f"{len(record.buffers):,}, {reached:,} of them used"
    return f"{text}, {quantity(written, 'new version')}" if written else text


def _flops(reader: TraceReader) -> str:
    costs = [reader.cost(row) for row in range(len(reader.rows))]
    flops = sum(cost.flops or 0 for cost in costs)
    macs = sum(cost.macs or 0 for cost in costs)
    text = f"{spaced_count(flops, 'FLOPs')}, {spaced_count(macs, 'MACs')}"
    unknown = [row for row, cost in enumerate(costs) if cost.flops is None]
    if not unknown:
        return text
    names = Counter(operation_of(reader.name(row)) for row in unknown)
    counted = [name if n == 1 else f"{name} ×{n}" for name, n in names.most_common()]
    return f"{text}; not known for {quantity(len(unknown), 'call')}: {listed(counted)}"


def _time(reader: TraceReader) -> str:
    rows = reader.rows
    untimed = sum(not took for kind, took in zip(rows.kind, rows.duration, strict=True) if kind == "boundary")
    text = f"{duration(sum(rows.duration))} in torch calls"
    return f"{text}; {quantity(untimed, 'boundary op')} not timed" if untimed else text


def _values(reader: TraceReader) -> str:
    stored = [nbytes for _, nbytes in held_storages(reader).values()]
    text = f"{byte_count(sum(stored))} kept in {quantity(len(stored), 'distinct storage')}"
    text += ", parameters not counted" if reader.record.params else ""
    saved = reader.record.options.save
    return text if saved is None else f"{text}; save={saved}"
