"""Reading a saved trace: every part is checked against the manifest, every number against what it counts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final, cast, get_args

from torch import Tensor

from torchlens import _arrow
from torchlens._files.sealed import Fields, as_list, as_object, parse
from torchlens._keys.chains import Frame
from torchlens._records import Failure, Kind, ModuleCallEntry, OpNumbers, Reached, Record, Rows, Side
from torchlens._trace.features import Features
from torchlens._trace.layering import LayerEntry, Layering
from torchlens._unseen import unseen
from torchlens._values.ghost import Recorded
from torchlens._values.ledger import Ledger, MetadataWrite, Write
from torchlens._values.lineage import Lineage
from torchlens._values.storage_index import StorageIndex
from torchlens._values.versions import version_of
from torchlens.errors import DamagedFileError
from torchlens.flops.cost import Cost
from torchlens.saving.archive import Archive, open_archive
from torchlens.saving.arguments import decode
from torchlens.saving.blobs import Kept, MappedBlobs, check_places
from torchlens.saving.checks import as_count, as_integer, check_below
from torchlens.saving.facts import FactReader
from torchlens.saving.functions import Unresolved, resolve
from torchlens.saving.layout import RECORD, TABLES, table_name
from torchlens.saving.loaded_tensors import LoadedTensors
from torchlens.saving.manifest import Manifest, read_manifest
from torchlens.saving.saved_reader import SavedReader, Told

Columns = Mapping[str, list[Any]]
_KINDS: Final = frozenset(get_args(Kind))
_SIDES: Final = frozenset(["left", "right", "unknown", None])
_KEYWORDS: Final = (dict, type(None))


def read_trace(path: Path, features: Features) -> SavedReader:
    """The reader of a saved trace.

    `PathNotFoundError` if nothing is there, `FileFormatError` if it is no saved trace or one of another
    format version, `DamagedFileError` if a part is not as it was written.
    """
    archive = open_archive(path)
    try:
        with unseen():
            return _Building(archive, read_manifest(archive), features).reader()
    except (ValueError, TypeError, LookupError, OverflowError, RuntimeError, MemoryError) as error:
        raise DamagedFileError(f"{path} is damaged: {error}; copy it again") from error
    except OSError as error:
        raise DamagedFileError(f"{path} cannot be read: {error.strerror}; copy it again") from error


class _Building:
    """Puts a record together from the parts of a file."""

    def __init__(self, archive: Archive, manifest: Manifest, features: Features) -> None:
        self._archive = archive
        self._manifest = manifest
        self._features = features
        self._tables = {table: self._table(table) for table in TABLES}
        storages = self._tables["storages"]
        names = ("shard", "begin", "nbytes", "low", "sha256")
        kept = [Kept(*each) for each in zip(*(storages[name] for name in names))]
        check_places(archive, kept, manifest.shards())
        self._blobs = MappedBlobs(archive, kept)
        self._tensors = LoadedTensors(self._tables["tensors"], kept, self._blobs)
        self._fields = Fields(parse(self._part(RECORD)))
        self._facts = FactReader(self._fields, self._tensors.__getitem__, self._tensors.param)

    def _part(self, name: str) -> bytes:
        octets = self._archive.read(name)
        if hashlib.sha256(octets).hexdigest() != self._manifest.parts[name].text("sha256"):
            raise ValueError(f"the bytes of {name} are not those that were written")
        return octets

    def _table(self, table: str) -> Columns:
        name = table_name(table)
        try:
            return _arrow.from_octets(
                self._part(name), TABLES[table], self._manifest.parts[name].count("rows")
            )
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error

    def reader(self) -> SavedReader:
        """All of it."""
        rows = self._rows()
        numbers = OpNumbers.of(rows)
        record = self._record(rows)
        told = self._told(record, numbers)
        return SavedReader(record, self._ledger(numbers), self._features, told)

    def _values(self, texts: Sequence[str | None]) -> list[Any]:
        """What JSON texts say, read as one; None where there is none."""
        found: list[object] = json.loads(f"[{','.join('null' if text is None else text for text in texts)}]")
        if len(found) != len(texts):
            raise ValueError("it has a text that is several")
        return [decode(each, self._tensors.__getitem__) for each in found]

    def _rows(self) -> Rows:
        table = self._tables["rows"]
        count = len(table["kind"])
        calls = len(self._tables["module_calls"]["module"])
        functions = [_function(item) for item in self._fields.items("functions")]
        check_below(table["function"], len(functions), "function")
        check_below(table["call"], calls, "module call")
        check_below(table["site"], len(self._tables["sites"]["frames"]), "site")
        check_below(table["context"], len(self._fields.items("contexts")), "context")
        if not _KINDS.issuperset(table["kind"]) or not _SIDES.issuperset(table["side"]):
            raise ValueError("it has rows of an unknown kind")
        outs = [
            tuple(map(self._tensors.__getitem__, out)) if several else self._tensors[_only(out)]
            for out, several in zip(table["outs"], table["is_tuple"])
        ]
        args, kwargs = self._values(table["args"]), self._values(table["kwargs"])
        if any(type(each) is not tuple for each in args) or any(type(k) not in _KEYWORDS for k in kwargs):
            raise ValueError("it has a call whose arguments are no list of them")
        return Rows(
            kind=cast("list[Kind]", table["kind"]),
            func=[functions[number] for number in table["function"]],
            site=table["site"],
            call=table["call"],
            context=table["context"],
            args=args,
            kwargs=kwargs,
            out=outs,
            version=[_versions(*each) for each in zip(table["versions"], table["is_tuple"], table["outs"])],
            duration=table["duration"] if count else (),
            side=cast("list[Side]", table["side"]),
        )

    def _record(self, rows: Rows) -> Record:
        facts, fields = self._facts, self._fields
        structure = facts.structure()
        inputs, outputs = list(fields.counts("inputs")), list(fields.counts("outputs"))
        reasons = facts.reasons()
        buffer_rows = (entry.rows for _, entry in structure.held_buffers)
        marked = chain(inputs, outputs, *(reason.rows for reason in reasons), *buffer_rows)
        check_below(marked, len(rows), "row")
        calls = self._module_calls(len(structure.module_places), len(rows))
        roots = list(fields.counts("root_calls"))
        check_below(roots, len(calls), "module call")
        return Record(
            rows=rows,
            places=[None],
            contexts=facts.contexts(),
            structure=structure,
            module_calls=calls,
            generators=facts.generators(),
            reads=facts.reads(),
            aliases=facts.aliases(),
            inputs=inputs,
            outputs=outputs,
            output=facts.output(),
            is_block=fields.flag("is_block"),
            root_calls=roots,
            status=facts.status(),
            failure=_failed(facts.failure(), rows, calls),
            notes=facts.notes(),
            reasons=reasons,
            host_edges=facts.host_edges(),
            options=facts.options(),
            halted_at=_reached(facts.halted_at(), rows, calls),
            census=facts.census(),
            input_names=facts.input_names(len(inputs)),
        )

    def _module_calls(self, num_modules: int, num_rows: int) -> list[ModuleCallEntry]:
        table = self._tables["module_calls"]
        check_below(table["module"], num_modules, "module")
        check_below(table["start"], num_rows + 1, "row")
        check_below((end for end in table["end"] if end is not None), num_rows + 1, "row")
        parents = table["parent"]
        if not parents or parents[0] > 0 or any(not 0 <= parents[at] < at for at in range(1, len(parents))):
            raise ValueError("it has a module call inside a later one")
        columns = {**table, **{name: self._values(table[name]) for name in ("args", "kwargs", "output")}}
        return [
            ModuleCallEntry(module, parent, number, start, args, kwargs, output, end)
            for module, parent, number, start, end, args, kwargs, output in zip(*columns.values())
        ]

    def _told(self, record: Record, numbers: OpNumbers) -> Told:
        rows, sites = self._tables["rows"], self._tables["sites"]
        tensors = self._tensors
        frames = [_frame(*each) for each in zip(*self._tables["frames"].values())]
        check_below(chain.from_iterable(sites["frames"]), len(frames), "frame")
        return Told(
            layering=self._layering(len(record.structure.module_places), len(numbers.rows)),
            lineage=self._lineage(len(record.structure.held_params)),
            costs=[_cost(*each) for each in zip(rows["flops"], rows["macs"], rows["flops_reason"])],
            names=rows["name"],
            known=rows["known"],
            frames=[tuple(map(frames.__getitem__, held)) for held in sites["frames"]],
            composites=[tuple(held) for held in sites["composites"]],
            requires_grad={
                (id(made), row): needs
                for made, row, needs in zip(
                    _outs(record.rows), numbers.rows, self._tables["ops"]["requires_grad"]
                )
            },
            devices=tensors.devices,
            lost=tensors.lost,
            versions={id(t): version_of(t) for t in tensors.tensors if isinstance(t, Tensor)},
            storage_of=tensors.storage_of,
            blobs=self._blobs,
        )

    def _layering(self, num_modules: int, num_ops: int) -> Layering:
        table = self._tables["layers"]
        layer_of: list[int] = self._tables["ops"]["layer"]
        if len(layer_of) != num_ops:
            raise ValueError(f"it says the layers of {len(layer_of)} ops, and has {num_ops}")
        check_below(layer_of, len(table["label"]), "layer")
        check_below(table["module"], num_modules, "module")
        layers = [_layer(*each) for each in zip(*table.values())]
        pass_of: list[int] = []
        for op, layer in enumerate(layer_of):
            layers[layer].ops.append(op)
            pass_of.append(len(layers[layer].ops))
        if not all(layer.ops for layer in layers):
            raise ValueError("it has a layer without an op")
        return Layering(layers, layer_of, pass_of)

    def _lineage(self, num_params: int) -> Lineage:
        ops, rows = self._tables["ops"], self._tables["rows"]
        parents = [_paired(at, found) for at, found in zip(ops["positions"], ops["parents"])]
        if any(not 0 <= parent < op for op, edges in enumerate(parents) for _, parent in edges):
            raise ValueError("it has an op that was computed from a later one")
        params = [_paired(at, found) for at, found in zip(rows["positions"], rows["params"])]
        check_below((param for used in params for _, param in used), num_params, "parameter")
        return Lineage(parents, params)

    def _ledger(self, numbers: OpNumbers) -> Ledger:
        ledger = Ledger(StorageIndex(()), None)
        ledger.copied_bytes = self._fields.count("copied_bytes")
        reshaped = self._tables["rows"]["reshaped"]
        ledger.reshaped = {row for row, changed in enumerate(reshaped) if changed}
        inplace = self._tables["ops"]["inplace"]
        ledger.inplace = {(numbers.rows[op], numbers.slots[op]) for op, wrote in enumerate(inplace) if wrote}
        for item in map(Fields, self._fields.items("raised")):
            change = MetadataWrite(item.count("row"), self._tensors[0], None, as_integer(item.any("bumps")))
            ledger.metadata_on.setdefault(self._tensors.key(item.count("storage")), []).append(change)
        for storage, write in self._writes(len(reshaped)):
            ledger.writes.setdefault(self._tensors.key(storage), []).append(write)
        for item in map(Fields, self._fields.items("metadata")):
            change = MetadataWrite(item.count("row"), self._tensors[item.count("alias")], None)
            ledger.metadata.setdefault(id(self._tensors[item.count("tensor")]), []).append(change)
        return ledger

    def _writes(self, num_rows: int) -> Iterable[tuple[int, Write]]:
        table, tensors = self._tables["writes"], self._tensors
        check_below(table["row"], num_rows + 1, "row")
        indices = self._values(table["index"])
        columns = {**table, "index": indices}
        for storage, row, slot, tensor, region, index, saved, lost, bumps in zip(*columns.values()):
            write = Write(row, slot, tensors[tensor], tensors[region], lost=lost, bumps=bumps)
            write.index = index
            if saved is not None:
                held = tensors[saved]
                if not isinstance(tensors[region], Tensor):
                    raise ValueError(f"it has the elements that row {row} wrote over, and not their place")
                if isinstance(held, Tensor):
                    write.saved = held
                else:
                    write.lost = lost or "what it overwrote could not be written to the file"
            yield storage, write


def _function(item: object) -> object:
    """The function that a file names, the word in its place, or what stands for one that is not listed."""
    ((kind, name),) = as_object(item).items()
    if kind == "word" and isinstance(name, str):
        return name
    namespace, own = map(str, as_list(name, "function"))
    found = resolve((namespace, own)) if kind == "listed" else None
    return Unresolved(namespace, own) if found is None else found


def _frame(file: str, function: str, *places: int | None) -> Frame:
    if any(place is not None and not 0 <= place < 2**31 for place in places):
        raise ValueError(f"a frame of {file[:60]!r} stands at {list(places)}")
    return Frame(file, function, *places)


def _layer(label: str, type: str, func_name: str, module: int) -> LayerEntry:  # noqa: A002 - the column
    return LayerEntry(label, type, func_name, module, [])


def _reached(found: Reached | None, rows: Rows, calls: Sequence[object]) -> Reached | None:
    """Where a run was halted, if the record has such a place."""
    if found is not None and found.call is not None:
        check_below([found.call], len(calls), "module call")
    elif found is not None:
        _check_output(rows, found.row, found.slot)
    return found


def _failed(found: Failure | None, rows: Rows, calls: Sequence[object]) -> Failure | None:
    """What ended a run, if the record has what it names."""
    if found is not None:
        check_below([found.module_call], len(calls), "module call")
        for argument in () if found.call is None else found.call.arguments:
            if argument.made is not None:
                _check_output(rows, *argument.made)
    return found


def _check_output(rows: Rows, row: int, slot: int) -> None:
    check_below([row], len(rows), "row")
    out = rows.out[row]
    check_below([slot], len(cast("tuple[Any, ...]", out)) if type(out) is tuple else 1, "output")


def _only(numbers: Sequence[int]) -> int:
    if len(numbers) != 1:
        raise ValueError(f"a call gave {len(numbers)} tensors where one belongs")
    return numbers[0]


def _paired(positions: Sequence[str], found: Sequence[int]) -> tuple[tuple[str, int], ...]:
    if len(positions) != len(found):
        raise ValueError(f"{len(found)} parents stand at {len(positions)} positions")
    return tuple(zip(positions, found))


def _outs(rows: Rows) -> Iterable[Recorded]:
    for out in rows.out:
        yield from cast("tuple[Recorded, ...]", out) if type(out) is tuple else (out,)


def _versions(counts: Sequence[int], is_tuple: bool, outs: Sequence[int]) -> Any:
    """A row's version counters, one for each output."""
    if len(counts) != len(outs):
        raise ValueError(f"{len(outs)} tensors have {len(counts)} version counters")
    known = tuple(None if count == -1 else count for count in counts)
    return known if is_tuple else known[0]


def _cost(flops: str | None, macs: str | None, reason: str | None) -> Cost:
    return Cost(None if flops is None else as_count(flops), None if macs is None else as_count(macs), reason)
