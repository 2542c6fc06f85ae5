"""The ops as a networkx graph. The only file that imports networkx, and only when a graph is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from torchlens._trace.reader import TraceReader
from torchlens._values.geometry import bytes_of, shape_of
from torchlens._values.lineage import HOST

if TYPE_CHECKING:
    import networkx as nx


def build_graph(reader: TraceReader) -> nx.DiGraph[str]:
    """One node an op, named by its label; one edge from each parent, with all argument positions it fills.

    All attributes are plain data. Nodes have `kind`, `type`, `func_name`, `layer`, `pass_number`, `module`
    (address), `module_call` (label; None outside any), `shape`, `dtype` (text), `nbytes`, `params` and
    `buffers` (addresses of those that the op reads itself), `flops` (None: not known), `duration_ns` (None:
    not timed), `line` (`"model.py:12 in Net.forward"`; None: no line made it). FLOPs and duration of a call
    with several outputs stand on the first. Edges have `positions`, and `host`, which is true where data came
    through numpy or Python lists rather than as an argument. The graph is frozen.
    """
    import networkx as nx

    graph = _graph_class()()
    labels = reader.op_labels
    graph.add_nodes_from(zip(labels, _node_attributes(reader)))
    edges: list[tuple[str, str, dict[str, Any]]] = []
    for op, parents in enumerate(reader.lineage.parents):
        filled: dict[int, list[str]] = {}
        for position, parent in parents:
            filled.setdefault(parent, []).append(position)
        edges += [
            (labels[parent], labels[op], {"positions": tuple(at), "host": HOST in at})
            for parent, at in filled.items()
        ]
    graph.add_edges_from(edges)
    nx.freeze(graph)
    return graph


def _node_attributes(reader: TraceReader) -> Iterator[dict[str, Any]]:
    """The attributes of each op, in capture order."""
    rows, numbers, layering, record = reader.rows, reader.numbers, reader.layering, reader.record
    addresses = [entry.addresses[0] for entry in record.modules]
    modules = [addresses[call.module] for call in record.module_calls]
    calls = [None, *reader.call_labels[1:]]
    params = [entry.addresses[0] for entry in record.params]
    line = _Lines(reader)
    for op, (row, slot) in enumerate(zip(numbers.rows, numbers.slots)):
        layer = layering.layers[layering.layer_of[op]]
        seen = reader.values.geometry(reader.tensor(row, slot), row, after=True)
        kind = rows.kind[row]
        yield {
            "kind": kind,
            "type": layer.type,
            "func_name": layer.func_name,
            "layer": layer.label,
            "pass_number": layering.pass_of[op],
            "module": modules[rows.call[row]],
            "module_call": calls[rows.call[row]],
            "shape": shape_of(seen),
            "dtype": str(seen.dtype),
            "nbytes": bytes_of(seen),
            "params": tuple(dict.fromkeys(params[at] for _, at in reader.lineage.params[row])),
            "buffers": _buffers(reader, op),
            "flops": reader.cost(row).flops if slot == 0 else None,
            "duration_ns": rows.duration[row] if slot == 0 and kind == "call" else None,
            "line": line.of(row),
        }


def _buffers(reader: TraceReader, op: int) -> tuple[str, ...]:
    if not reader.record.buffers:
        return ()
    rows = (reader.numbers.rows[parent] for parent in reader.parents[op])
    found = dict.fromkeys(reader.buffer_of_row[row] for row in rows if row in reader.buffer_of_row)
    return tuple(reader.record.buffers[at].addresses[0] for at in found)


class _Lines:
    """The innermost line of each call, once a place."""

    def __init__(self, reader: TraceReader) -> None:
        self._reader = reader
        self._known: dict[int, str | None] = {}

    def of(self, row: int) -> str | None:
        """`model.py:12 in Net.forward`; None for what no line of code made."""
        site = self._reader.rows.site[row]
        if site not in self._known:
            frames = self._reader.frames(row)
            self._known[site] = str(frames[-1]) if frames else None
        return self._known[site]


@cache
def _graph_class() -> type[nx.DiGraph[str]]:
    """A directed graph that leaves no reference cycle: networkx keeps on a graph the views that hold it."""
    import networkx as nx
    from networkx.classes import reportviews

    views = {
        "edges": reportviews.OutEdgeView,
        "out_edges": reportviews.OutEdgeView,
        "in_edges": reportviews.InEdgeView,
        "degree": reportviews.DiDegreeView,
        "in_degree": reportviews.InDegreeView,
        "out_degree": reportviews.OutDegreeView,
    }
    return type("OpGraph", (nx.DiGraph,), {name: property(view) for name, view in views.items()})
