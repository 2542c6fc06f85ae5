"""All tables of a trace, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from torchlens._arrow import Column
from torchlens._trace.lookup import missing
from torchlens._trace.reader import TraceReader
from torchlens.errors import MissingKeyError
from torchlens.tables import edges, frames, layers, modules, ops, state

if TYPE_CHECKING:
    import pyarrow as pa

TableName: TypeAlias = Literal[
    "ops", "layers", "edges", "modules", "module_calls", "params", "buffers", "frames"
]


class Kind(NamedTuple):
    """What a table holds, and how it is made."""

    columns: Sequence[Column]
    make: Callable[[TraceReader], pa.Table]


KINDS: Final[Mapping[str, Kind]] = {
    "ops": Kind(ops.COLUMNS, ops.ops_table),
    "layers": Kind(layers.COLUMNS, layers.layers_table),
    "edges": Kind(edges.COLUMNS, edges.edges_table),
    "modules": Kind(modules.MODULE_COLUMNS, modules.modules_table),
    "module_calls": Kind(modules.CALL_COLUMNS, modules.module_calls_table),
    "params": Kind(state.PARAM_COLUMNS, state.params_table),
    "buffers": Kind(state.BUFFER_COLUMNS, state.buffers_table),
    "frames": Kind(frames.COLUMNS, frames.frames_table),
}


class Tables(Mapping[str, "pa.Table"]):
    """The tables of a trace, as attributes and by name; each is made when first asked for, and kept.

    What each column holds, and its unit, is in docs/tables.md and in the metadata of the field.

    >>> import torch, torchlens as tl
    >>> trace = tl.trace(torch.nn.ReLU(), torch.tensor([-1.0, 2.0]))
    >>> trace.tables.edges.select(["parent", "child"]).to_pylist()
    [{'parent': 'input_1:1', 'child': 'relu_1:1'}, {'parent': 'relu_1:1', 'child': 'output_1:1'}]
    >>> list(trace.tables)
    ['ops', 'layers', 'edges', 'modules', 'module_calls', 'params', 'buffers', 'frames']
    """

    def __init__(self, reader: TraceReader) -> None:
        self._reader = reader
        self._made: dict[str, pa.Table] = {}

    @property
    def ops(self) -> pa.Table:
        """One row for each op, in capture order."""
        return self["ops"]

    @property
    def layers(self) -> pa.Table:
        """One row for each layer: what its passes share, and sums over them."""
        return self["layers"]

    @property
    def edges(self) -> pa.Table:
        """One row for each pair of ops of which one read the other."""
        return self["edges"]

    @property
    def modules(self) -> pa.Table:
        """One row for each module, called or not, the root first."""
        return self["modules"]

    @property
    def module_calls(self) -> pa.Table:
        """One row for each call of a module, in the order in which they began."""
        return self["module_calls"]

    @property
    def params(self) -> pa.Table:
        """One row for each parameter of the model, ties once."""
        return self["params"]

    @property
    def buffers(self) -> pa.Table:
        """One row for each buffer of the model."""
        return self["buffers"]

    @property
    def frames(self) -> pa.Table:
        """One row for each Python frame of each call site."""
        return self["frames"]

    def __getitem__(self, key: str) -> pa.Table:
        made = self._made.get(key)
        if made is None:
            if key not in KINDS:
                raise MissingKeyError(missing(key, "table", KINDS))
            made = self._made[key] = KINDS[key].make(self._reader)
        return made

    def __iter__(self) -> Iterator[str]:
        return iter(KINDS)

    def __len__(self) -> int:
        return len(KINDS)

    def __repr__(self) -> str:
        return f"<Tables {', '.join(KINDS)}>"
