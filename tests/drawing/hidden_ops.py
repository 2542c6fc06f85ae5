"""What flows past hidden ops, by networkx: an oracle for `hide=`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import networkx as nx


def edges_past(graph: Any, hidden: Collection[str]) -> set[tuple[str, str]]:
    """The pairs of visible nodes that an edge joins, or a path on which everything between them is hidden."""
    found = {(a, b) for a, b in graph.edges if a not in hidden and b not in hidden}
    for part in nx.weakly_connected_components(graph.subgraph(hidden)):
        reach = nx.transitive_closure(graph.subgraph(part), reflexive=True)
        for first, last in reach.edges:
            found |= {
                (a, b)
                for a in graph.predecessors(first)
                for b in graph.successors(last)
                if a not in hidden and b not in hidden
            }
    return found
