"""How much memory a trace holds: values, what was saved of them before writes, and the record itself."""

from __future__ import annotations

import sys
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, Final, cast

import torch
from rich.console import RenderableType
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from torchlens._records import Record
from torchlens._trace.reader import TraceReader
from torchlens._unseen import unseen
from torchlens._values.geometry import bytes_of, storage_key
from torchlens._values.ghost import Ghost, StorageKey
from torchlens.report.amounts import byte_count, quantity
from torchlens.report.text import Printable, Symbols, fact_grid


@dataclass(frozen=True, repr=False)
class Memory(Printable):
    """Bytes that a trace keeps in memory.

    `kept_bytes` is what `del trace` gives back, together with `copied_bytes` and `record_bytes`: each storage
    counts once and whole, however many ops, views and passes share it, and what the caller or the model holds
    anyway stands apart in `given_bytes` and `parameter_bytes`. Values on the meta device are no memory. What
    autograd saves for a backward is torch's: where it is no value of the trace, it is not counted.
    """

    kept_bytes: int
    """Distinct storages of values that the run computed, the model's output among them; also of a buffer's
    old value that another tensor has replaced."""
    copied_bytes: int
    """Saved during the run because it was about to be overwritten in place."""
    record_bytes: int
    """Python objects that the record consists of, and the tensors' Python shells; no tensor's elements, and
    nothing that is computed when the trace is read."""
    given_bytes: int
    """Inputs, sources, and buffers that the model holds at the end."""
    parameter_bytes: int
    """Of all parameters of the model, used or not, ties once."""
    generator_bytes: int
    """States of random generators, noted before calls that draw."""
    num_storages: int
    """How many distinct storages `kept_bytes` is in."""
    num_rows: int
    measured_rows: int
    """Rows of the record that were measured. In a long record these are blocks at even distances, and
    `record_bytes` is scaled up from them."""

    @property
    def total_bytes(self) -> int:
        """What the trace adds to what the caller and the model hold."""
        return self.kept_bytes + self.copied_bytes + self.record_bytes + self.generator_bytes

    def parts(self, width: int, symbols: Symbols) -> Iterable[RenderableType]:
        """A line for each of the parts."""
        yield fact_grid(self._facts(), symbols)

    def _facts(self) -> Iterator[tuple[str, str]]:
        yield "total", f"{byte_count(self.total_bytes)} kept by the trace alone"
        yield "values", f"{byte_count(self.kept_bytes)} in {quantity(self.num_storages, 'distinct storage')}"
        if self.copied_bytes:
            yield "copies", f"{byte_count(self.copied_bytes)} saved before in-place writes"
        if self.generator_bytes:
            yield "generators", f"{byte_count(self.generator_bytes)} of random state"
        measured = "" if self.measured_rows == self.num_rows else f", {self.measured_rows:,} of them measured"
        yield "record", f"{byte_count(self.record_bytes)} for {quantity(self.num_rows, 'row')}{measured}"
        yield "given", f"{byte_count(self.given_bytes)} of inputs, sources and buffers, held elsewhere too"
        yield "parameters", f"{byte_count(self.parameter_bytes)}, held by the model"


def measure_memory(reader: TraceReader) -> Memory:
    """Count the bytes that a record and its values take; nothing of it is read or changed."""
    storages = held_storages(reader)
    given = given_storages(reader, storages)
    computed = [nbytes for key, (_, nbytes) in storages.items() if key not in given]
    states = {id(state): state for noted in reader.record.generators.values() for _, state in noted}
    return Memory(
        kept_bytes=sum(computed),
        copied_bytes=reader.values.copied_bytes,
        record_bytes=_record_bytes(reader),
        given_bytes=sum(storages[key][1] for key in given),
        parameter_bytes=parameter_bytes(reader.record),
        generator_bytes=sum(cast("Tensor", state).nbytes for state in states.values()),
        num_storages=len(computed),
        num_rows=len(reader.rows),
        measured_rows=min(len(reader.rows), _MOST),
    )


# ---- values --------------------------------------------------------------------------------------


def held_tensors(reader: TraceReader, meant: Container[int] | None = None) -> Iterator[tuple[int, Tensor]]:
    """(op, tensor) of the values that the record holds, in capture order, each as it lay after its op.

    `meant` are the ops to look at, if not all.
    """
    for op, (row, slot) in enumerate(zip(reader.numbers.rows, reader.numbers.slots)):
        if meant is not None and op not in meant:
            continue
        held = reader.values.held(reader.tensor(row, slot), row)
        if held is not None:
            yield op, held


def held_storages(
    reader: TraceReader, meant: Container[int] | None = None
) -> dict[StorageKey, tuple[int, int]]:
    """(first op with a value there, bytes) of each storage that values lie in, in capture order.

    A view holds all of its storage. Those of parameters and on the meta device are left out.
    """
    params = {key for tensor, _, _ in reader.record.structure.held_params for key, _ in storages_of(tensor)}
    found: dict[StorageKey, tuple[int, int]] = {}
    for op, tensor in held_tensors(reader, meant):
        for key, nbytes in storages_of(tensor):
            if key not in found and key not in params and not tensor.is_meta:
                found[key] = op, nbytes
    return found


def given_storages(reader: TraceReader, storages: Mapping[StorageKey, tuple[int, int]]) -> set[StorageKey]:
    """Those that the caller or the model holds as well: of inputs, sources and the buffers as they are."""
    buffers = [buffer.final for _, buffer in reader.record.structure.held_buffers]
    held = {key for tensor in buffers if tensor is not None for key, _ in storages_of(tensor)}
    rows, kinds = reader.numbers.rows, reader.rows.kind
    return {key for key, (op, _) in storages.items() if key in held or kinds[rows[op]] in ("input", "source")}


def storages_of(tensor: Tensor) -> list[tuple[StorageKey, int]]:
    """(key, bytes) of the storages that a tensor lies in; several where it is made of other tensors."""
    if type(tensor) is Tensor and tensor.layout is torch.strided:
        storage = tensor.untyped_storage()
        return [(storage._cdata, storage.nbytes())]
    if is_lazy(tensor):  # its module has not run
        return []
    with unseen():
        parts = _parts(tensor)
        if parts:
            return [storage for part in parts for storage in storages_of(part)]
        key = storage_key(tensor)
        return [(key, tensor.untyped_storage().nbytes() if key > 0 else bytes_of(tensor))]


def parameter_bytes(record: Record) -> int:
    """Bytes of the distinct storages of all parameters."""
    tensors = [tensor for tensor, _, _ in record.structure.held_params if not tensor.is_meta]
    held = {key: nbytes for tensor in tensors for key, nbytes in storages_of(tensor)}
    return sum(held.values())


def _parts(tensor: Any) -> list[Tensor]:
    """The tensors that a sparse tensor, or one that wraps others, is made of."""
    names = _SPARSE.get(tensor.layout, ())
    if names and not tensor.is_nested:
        return [getattr(tensor, name)() for name in names]
    if hasattr(tensor, "__tensor_flatten__"):  # torch's protocol for it
        held = [getattr(tensor, name) for name in cast("list[str]", tensor.__tensor_flatten__()[0])]
        return [part for part in held if isinstance(part, Tensor)]
    return []


_SPARSE: Final[Mapping[torch.layout, Sequence[str]]] = {
    torch.sparse_coo: ("_values", "_indices"),
    torch.sparse_csr: ("values", "crow_indices", "col_indices"),
    torch.sparse_bsr: ("values", "crow_indices", "col_indices"),
    torch.sparse_csc: ("values", "ccol_indices", "row_indices"),
    torch.sparse_bsc: ("values", "ccol_indices", "row_indices"),
}


# ---- the record ----------------------------------------------------------------------------------

_MOST: Final = 40_000
"""Items of one sequence that are looked at one by one; of more, blocks at even distances."""
_BLOCK: Final = 100
_SHELL: Final = sys.getsizeof(torch.empty(0))
"""The Python object of a tensor; what it holds is torch's."""


def _record_bytes(reader: TraceReader) -> int:
    """Bytes of the record's Python objects."""
    sizes = _Sizes()
    return sizes.add(reader.record) + sizes.add(reader.ledger) + _shell_bytes(reader)


def _sample(count: int) -> Sequence[int]:
    """Which of many items to look at: all, or blocks in succession, which show a loop in its proportions.

    They are the same for all columns of a record, so that what one row has in two of them counts once.
    """
    if count <= _MOST:
        return range(count)
    blocks = _MOST // _BLOCK
    starts = (at * (count - _BLOCK) // (blocks - 1) for at in range(blocks))
    return [item for start in starts for item in range(start, start + _BLOCK)]


def _shell_bytes(reader: TraceReader) -> int:
    """Of the tensor objects that nobody but the trace needs to hold."""
    structure, rows = reader.record.structure, reader.rows
    elsewhere = {id(tensor) for tensor, _, _ in structure.held_params}
    elsewhere.update(id(buffer.final) for _, buffer in structure.held_buffers)
    elsewhere.update(id(rows.out[row]) for row in reader.record.inputs)
    outs = cast("list[object]", rows.out)
    several = [_items(out) if isinstance(out, tuple) else (out,) for out in outs]
    own = {id(tensor) for tensors in several for tensor in tensors if isinstance(tensor, Tensor)}
    writes = sum(map(len, reader.ledger.writes.values()))
    return (len(own - elsewhere) + _OF_A_WRITE * writes) * _SHELL


_OF_A_WRITE: Final = 3
"""Tensor objects of a write: two aliases of what is written, and what was saved of it."""


class _Sizes:
    """Adds up objects, each once. Tensors, functions, classes, code and modules are not the record's own."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def add(self, value: object) -> int:
        """Bytes of an object, and of what it consists of, as far as they were not added before."""
        total = 0
        waiting = [value]
        seen = self._seen
        while waiting:
            item = waiting.pop()
            kind = type(item)
            if kind in _SHARED or id(item) in seen or issubclass(kind, _NOT_OURS):
                continue
            if kind is int and -6 < cast("int", item) < 257:  # Python has these once for all
                continue
            if kind is str and cast("str", item).isidentifier():  # names are the code's and the model's
                continue
            seen.add(id(item))
            total += sys.getsizeof(item)
            if kind in _LEAVES:
                continue
            parts = _parts_of(item)
            if len(parts) > _MOST:
                picked = _sample(len(parts))
                total += sum(self.add(parts[at]) for at in picked) * len(parts) // len(picked)
            else:
                waiting.extend(parts)
        return total


def _parts_of(item: object) -> Sequence[object]:
    """What an object consists of, if it is a container or one of ours."""
    kind: Any = type(item)
    bases = cast("tuple[type[object], ...]", kind.__mro__)
    if tuple in bases or list in bases:
        return _items(item)
    if set in bases or frozenset in bases:
        return list(_items(item))
    parts: list[object] = []
    if dict in bases:
        pairs = cast("dict[object, object]", item)
        parts += [part for pair in pairs.items() for part in pair]
    if "__dataclass_fields__" in dir(kind):  # ours without what reading adds, or a copy of the user's
        parts += [getattr(item, name) for name in kind.__dataclass_fields__ if hasattr(item, name)]
    elif isinstance(item, Ghost):
        parts += [item.look, item.key, item.row]
    elif kind.__module__.startswith("torchlens.") and hasattr(item, "__dict__"):
        parts.append(vars(item))
    return parts


def _items(container: Any) -> Sequence[object]:
    return container


_SHARED: Final = frozenset([type(None), bool, type(Ellipsis)])
_LEAVES: Final = frozenset([int, float, complex, str, bytes])
_NOT_OURS: Final = (
    Tensor,
    nn.Module,
    type,
    FunctionType,
    BuiltinFunctionType,
    CodeType,
    ModuleType,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    type(torch.Tensor.add),
    type(torch.Tensor.__add__),
)
