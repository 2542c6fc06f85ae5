"""The ops as a networkx graph. The only file that imports networkx, and only when a graph is asked for."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from torchlens._trace.reader import TraceReader
from torchlens._values.geometry import shape_of

if TYPE_CHECKING:
    import networkx as nx


def build_graph(reader: TraceReader) -> nx.DiGraph[str]:
    """One node an op, named by its label; one edge from each parent, with all argument positions it fills.

    Nodes carry `kind`, `type`, `func_name`, `layer`, `pass_number`, `module` (address), `shape` and `dtype`
    as plain data; edges carry `positions`. The graph is frozen.
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
    for op, edges in enumerate(reader.lineage.parents):
        positions: dict[int, list[str]] = {}
        for position, parent in edges:
            positions.setdefault(parent, []).append(position)
        for parent, filled in positions.items():
            graph.add_edge(labels[parent], labels[op], positions=tuple(filled))
    nx.freeze(graph)
    return graph


@cache
def _graph_class() -> type[nx.DiGraph[str]]:
    import networkx as nx

    class OpGraph(nx.DiGraph[str] if TYPE_CHECKING else nx.DiGraph):
        """A directed graph that leaves no reference cycle: networkx keeps on a graph the views that hold it."""

        @property
        def edges(self) -> nx.reportviews.OutEdgeView[str]:
            return nx.reportviews.OutEdgeView(self)

        @property
        def out_edges(self) -> nx.reportviews.OutEdgeView[str]:
            return nx.reportviews.OutEdgeView(self)

        @property
        def in_edges(self) -> nx.reportviews.InEdgeView[str]:
            return nx.reportviews.InEdgeView(self)

        @property
        def degree(self) -> nx.reportviews.DiDegreeView[str]:
            return nx.reportviews.DiDegreeView(self)

        @property
        def in_degree(self) -> nx.reportviews.InDegreeView[str]:
            return nx.reportviews.InDegreeView(self)

        @property
        def out_degree(self) -> nx.reportviews.OutDegreeView[str]:
            return nx.reportviews.OutDegreeView(self)

    return OpGraph
