"""What a record has once, as JSON and back: the model's structure, options, how the run ended."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, Final, Literal, cast, get_args

from torch import Tensor
from torch.nn.parameter import is_lazy

from torchlens._files.sealed import Fields, Json, as_list, as_object
from torchlens._records import (
    Census,
    CensusEntry,
    Context,
    FailedArgument,
    FailedCall,
    Failure,
    Reached,
    Reason,
    ReasonName,
    Record,
    RunOptions,
    SourceLine,
    Status,
)
from torchlens._structure import BufferEntry, Place, Structure
from torchlens._values.ghost import Recorded
from torchlens.saving.arguments import Number, TensorOf, decode, encode
from torchlens.saving.checks import (
    as_integer_or_none,
    as_items,
    as_number,
    as_one_of,
    as_rows,
    as_text,
    check_below,
)

_STATUSES: Final = cast("tuple[Status, ...]", get_args(Status))
_REASONS: Final = cast("tuple[ReasonName, ...]", get_args(ReasonName))
_MOST_ADDRESSES: Final = 10_000
_MOST_LETTERS: Final = 10_000_000
"""Of one module's addresses."""
_MOST_STEPS: Final = 1_000_000
"""From module to holder, in all: modules that hold one another have exponentially many ways."""
_Fused = Literal["keep", "expand"]


def facts_of(record: Record, number: Number) -> dict[str, Json]:
    """A record's own fields; tensors by number."""
    return {
        "structure": _structure_of(record.structure, number),
        "contexts": [dataclasses.asdict(context) for context in record.contexts],
        "generators": [
            [row, [[device, number(state)] for device, state in states]]
            for row, states in record.generators.items()
        ],
        "reads": [[before, name, number(tensor)] for before, name, tensor in record.reads],
        "aliases": [[before, number(one), number(other)] for before, one, other in record.aliases],
        "host_edges": [
            [row, [[number(tensor), before] for tensor, before in edges]]
            for row, edges in record.host_edges.items()
        ],
        "inputs": list(record.inputs),
        "input_names": list(record.input_names),
        "outputs": list(record.outputs),
        "output": encode(record.output, number),
        "is_block": record.is_block,
        "root_calls": list(record.root_calls),
        "status": record.status,
        "failure": None if record.failure is None else dataclasses.asdict(record.failure),
        "notes": list(record.notes),
        "reasons": [dataclasses.asdict(dataclasses.replace(r, rows=list(r.rows))) for r in record.reasons],
        "options": dataclasses.asdict(record.options),
        "halted_at": None if record.halted_at is None else dataclasses.asdict(record.halted_at),
        "census": None if record.census is None else dataclasses.asdict(record.census),
    }


def _structure_of(structure: Structure, number: Number) -> Json:
    return {
        "module_places": [[list(place) for place in places] for places in structure.module_places],
        "module_types": list(structure.module_types),
        "training": list(structure.training),
        "params": [
            [number(tensor), [list(place) for place in places], tensor.requires_grad]
            for tensor, places, _ in structure.held_params
        ],
        "replacements": [[number(tensor), param] for tensor, param in structure.replacements],
        "buffers": [
            {
                "places": [list(place) for place in places],
                "persistent": entry.persistent,
                "rows": list(entry.rows),
                "initial": None if entry.initial is None else number(entry.initial),
                "final": None if entry.final is None else number(entry.final),
            }
            for places, entry in structure.held_buffers
        ],
    }


class FactReader:
    """Reads the fields of `facts_of` again; a `ValueError` for what it does not write."""

    def __init__(self, fields: Fields, tensor_of: TensorOf, param_of: Callable[[int], Tensor]) -> None:
        self._fields = fields
        self._param_of = param_of
        self._tensor_of = tensor_of

    def structure(self) -> Structure:
        """Who holds what."""
        found = Fields(self._fields.any("structure"))
        places = [
            [_holder(each) for each in as_list(item, "places")] for item in found.items("module_places")
        ]
        _check_addresses(places)
        training = found.items("training")
        types = tuple(map(as_text, found.items("module_types")))
        if not len(places) == len(training) == len(types) or not all(places):
            raise ValueError(f"it has {len(places)} modules of {len(types)} types")
        held_params = [self._param(item, len(places)) for item in found.items("params")]
        replaced = [as_items(item, 2) for item in found.items("replacements")]
        check_below([param for _, param in replaced], len(held_params), "parameter")
        return Structure(
            module_places=places,
            module_types=types,
            training=[bool(each) for each in training],
            held_params=held_params,
            replacements=[(self._tensor(tensor), cast("int", param)) for tensor, param in replaced],
            held_buffers=[self._buffer(Fields(item), len(places)) for item in found.items("buffers")],
        )

    def _param(self, item: object, num_modules: int) -> tuple[Recorded, list[Place], None]:
        number, places, is_trainable = as_items(item, 3)
        tensor = self._param_of(as_number(number))
        if is_trainable and not is_lazy(tensor) and (tensor.is_floating_point() or tensor.is_complex()):
            tensor.requires_grad_()
        return tensor, _places(places, num_modules), None

    def _buffer(self, found: Fields, num_modules: int) -> tuple[list[Place], BufferEntry]:
        initial, final = found.any("initial"), found.any("final")
        entry = BufferEntry(
            addresses=(),
            persistent=found.flag("persistent"),
            rows=list(found.counts("rows")),
            initial=None if initial is None else self._tensor(initial),
            final=None if final is None else self._tensor(final),
            version=None,
        )
        return _places(found.any("places"), num_modules), entry

    def contexts(self) -> list[Context]:
        """What state of torch the calls ran under."""
        made: list[Context] = []
        for item in map(Fields, self._fields.items("contexts")):
            autocast = {name: as_text(dtype) for name, dtype in as_object(item.any("autocast")).items()}
            grad, inference = item.flag("grad_enabled"), item.flag("inference_mode")
            made.append(
                Context(grad, inference, autocast, item.text("default_dtype"), item.text("default_device"))
            )
        return made

    def generators(self) -> dict[int, list[tuple[str, Any]]]:
        """States of random generators by row."""
        return {
            as_number(row): [(as_text(device), self._tensor(state)) for device, state in as_rows(states, 2)]
            for row, states in as_rows(self._fields.any("generators"), 2)
        }

    def reads(self) -> list[tuple[int, str, Any]]:
        """Values that left for Python."""
        found = as_rows(self._fields.any("reads"), 3)
        return [(as_number(before), as_text(name), self._tensor(tensor)) for before, name, tensor in found]

    def aliases(self) -> list[tuple[int, Any, Any]]:
        """Objects that torch made for known storages."""
        found = as_rows(self._fields.any("aliases"), 3)
        return [(as_number(before), self._tensor(one), self._tensor(other)) for before, one, other in found]

    def host_edges(self) -> dict[int, list[tuple[Any, int]]]:
        """Data that came through the host, by row."""
        return {
            as_number(row): [
                (self._tensor(tensor), as_number(before)) for tensor, before in as_rows(edges, 2)
            ]
            for row, edges in as_rows(self._fields.any("host_edges"), 2)
        }

    def input_names(self, num_inputs: int) -> list[str | None]:
        """What the inputs go by; empty where the release that wrote the file did not know."""
        if "input_names" not in self._fields:
            return []
        names = [None if name is None else as_text(name) for name in self._fields.items("input_names")]
        if len(names) not in (0, num_inputs):
            raise ValueError(f"it has {len(names)} names for {num_inputs} inputs")
        return names

    def output(self) -> Any:
        """What the model returned."""
        return decode(self._fields.any("output"), self._tensor_of)

    def status(self) -> Status:
        """How the run ended."""
        return as_one_of(self._fields.any("status"), _STATUSES)

    def failure(self) -> Failure | None:
        """The exception that ended it."""
        found = self._fields.any("failure")
        return None if found is None else _made(Failure, found, _FAILURE)

    def notes(self) -> list[str]:
        """What was not as usual."""
        return [as_text(note) for note in self._fields.items("notes")]

    def reasons(self) -> list[Reason]:
        """Why the trace cannot vouch for its graph."""
        checks: Mapping[str, Callable[[object], Any]] = {
            "name": lambda name: as_one_of(name, _REASONS),
            "text": as_text,
            "count": as_number,
            "rows": lambda rows: [as_number(row) for row in as_list(rows, "rows")],
        }
        return [_made(Reason, item, checks) for item in self._fields.items("reasons")]

    def options(self) -> RunOptions:
        """Options and versions of the run."""
        checks: Mapping[str, Callable[[object], Any]] = {
            "seed": as_integer_or_none,
            "max_copied": as_integer_or_none,
            "torch_version": as_text,
            "python_version": as_text,
            "fused": lambda fused: as_one_of(fused, cast("tuple[_Fused, ...]", get_args(_Fused))),
            "save": lambda save: None if save is None else as_text(save),
            "grouping_policy": lambda policy: {k: as_text(v) for k, v in as_object(policy).items()},
        }
        return _made(RunOptions, self._fields.any("options"), checks)

    def halted_at(self) -> Reached | None:
        """Where `stop_after` ended the run."""
        found = self._fields.any("halted_at")
        checks = {"row": as_integer_or_none, "slot": as_number, "call": as_integer_or_none}
        return None if found is None else _made(Reached, found, checks)

    def census(self) -> Census | None:
        """What the witness counted."""
        found = self._fields.any("census")
        entry: Mapping[str, Callable[[object], Any]] = {
            "operator": as_text,
            "count": as_number,
            "line": as_text,
        }
        checks: Mapping[str, Callable[[object], Any]] = {
            "counts": lambda counts: {name: as_number(count) for name, count in as_object(counts).items()},
            "leftovers": lambda items: [
                _made(CensusEntry, item, entry) for item in as_list(items, "leftovers")
            ],
        }
        return None if found is None else _made(Census, found, checks)

    def _tensor(self, found: object) -> Recorded:
        return self._tensor_of(as_number(found))


def _made(kind: Any, found: object, checks: Mapping[str, Callable[[object], Any]]) -> Any:
    """A dataclass from an object that has each of its fields."""
    fields = as_object(found)
    if fields.keys() != checks.keys():
        raise ValueError(f"it has {sorted(fields)} for a {kind.__name__}")
    return kind(**{name: checks[name](held) for name, held in fields.items()})


def _check_addresses(places: Sequence[Sequence[tuple[int | None, str]]]) -> None:
    """Raise unless every module has an address, and all of them together fit into memory.

    Modules that are held twice, in modules that are held twice, have exponentially many.
    """
    check_below(
        [holder for held in places for holder, _ in held if holder is not None], len(places), "module"
    )
    sizes: list[tuple[int, int] | None] = [None] * len(places)
    steps = count(1)

    def size(module: int, within: frozenset[int]) -> tuple[int, int]:
        """How many addresses a module has, and letters in all of them; as `addresses_of` would spell them."""
        if next(steps) > _MOST_STEPS:
            raise ValueError(f"module {module} is held in too many ways")
        known = sizes[module]
        if known is not None:
            return known
        if module in within:
            return 0, 0
        held = [
            ((1, 0) if holder is None else size(holder, within | {module}), len(name) + 1)
            for holder, name in places[module]
        ]
        found = sum(many for (many, _), _ in held), sum(n + many * own for (many, n), own in held)
        if found[0] > _MOST_ADDRESSES or found[1] > _MOST_LETTERS:
            raise ValueError(f"module {module} has {found[0]} addresses")
        if found[0]:
            sizes[module] = found
        return found

    for module in range(len(places)):
        if not size(module, frozenset())[0]:
            raise ValueError(f"module {module} has no address")


def _holder(found: object) -> tuple[int | None, str]:
    holder, name = as_items(found, 2)
    return None if holder is None else as_number(holder), as_text(name)


def _places(found: object, num_modules: int) -> list[Place]:
    places = [(as_number(module), as_text(name)) for module, name in as_rows(found, 2)]
    check_below([module for module, _ in places], num_modules, "module")
    if not places:
        raise ValueError("it has something that no module holds")
    return places


def _truth(found: object) -> bool:
    if type(found) is not bool:
        raise ValueError(f"{str(found)[:60]!r} is neither true nor false")
    return found


def _or_none(check: Callable[[object], Any]) -> Callable[[object], Any]:
    return lambda found: None if found is None else check(found)


def _each(kind: Any, checks: Mapping[str, Callable[[object], Any]]) -> Callable[[object], Any]:
    """A tuple of dataclasses from a list of objects."""
    return lambda found: tuple(_made(kind, item, checks) for item in as_list(found, "items"))


_SOURCE_LINE: Final = {"file": as_text, "line": as_number, "function": as_text, "text": as_text}
_ARGUMENT: Final[Mapping[str, Callable[[object], Any]]] = {
    "position": as_text,
    "text": as_text,
    "dtype": _or_none(as_text),
    "shape": _or_none(lambda shape: tuple(map(_size, as_list(shape, "sizes")))),
    "device": _or_none(as_text),
    "made": _or_none(lambda made: tuple(map(as_number, as_items(made, 2)))),
    "param": _or_none(as_text),
}
_CALL: Final[Mapping[str, Callable[[object], Any]]] = {
    "func_name": as_text,
    "composites": lambda names: tuple(map(as_text, as_list(names, "names"))),
    "arguments": _each(FailedArgument, _ARGUMENT),
    "more_arguments": as_number,
    "raised": _or_none(as_text),
}
_FAILURE: Final[Mapping[str, Callable[[object], Any]]] = {
    "type_name": as_text,
    "message": as_text,
    "traceback": as_text,
    "lines": _each(SourceLine, _SOURCE_LINE),
    "module_call": as_number,
    "in_hook": _truth,
    "call": _or_none(lambda call: _made(FailedCall, call, _CALL)),
}


def _size(found: object) -> int:
    return -1 if found == -1 else as_number(found)
