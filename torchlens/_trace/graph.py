"""The ops as a networkx graph. The only file that imports networkx, and only when a graph is asked for."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from torchlens._trace.reader import TraceReader
from torchlens._values.geometry import shape_of
from torchlens._values.lineage import HOST

if TYPE_CHECKING:
    import networkx as nx


def build_graph(reader: TraceReader) -> nx.DiGraph[str]:
    """One node an op, named by its label; one edge from each parent, with all argument positions it fills.

    Nodes carry `kind`, `type`, `func_name`, `layer`, `pass_number`, `module` (address), `shape` and `dtype`
    as plain data; edges carry `positions`, and `host`, which is true where data came through numpy or Python
    lists rather than as an argument. The graph is frozen.
    """
    import networkx as nx

    graph = _graph_class()()
    labels = reader.op_labels
    rows, numbers, layering = reader.rows, reader.numbers, reader.layering
    addresses = [entry.addresses[0] for entry in reader.record.modules]
    modules = [addresses[call.module] for call in reader.record.module_calls]
    nodes: list[tuple[str, dict[str, Any]]] = []
    for op, (row, slot) in enumerate(zip(numbers.rows, numbers.slots)):
        layer = layering.layers[layering.layer_of[op]]
        seen = reader.values.geometry(reader.tensor(row, slot), row, after=True)
        attributes = {
            "kind": rows.kind[row],
            "type": layer.type,
            "func_name": layer.func_name,
            "layer": layer.label,
            "pass_number": layering.pass_of[op],
            "module": modules[rows.call[row]],
            "shape": shape_of(seen),
            "dtype": str(seen.dtype),
        }
        nodes.append((labels[op], attributes))
    graph.add_nodes_from(nodes)
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
