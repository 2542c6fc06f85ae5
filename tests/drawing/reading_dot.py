"""Reads DOT text back: nodes, clusters and arrows with their words."""

from __future__ import annotations

import html
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pydot

_TAG = re.compile(r"<[^>]*>")
_BREAK = re.compile(r"<BR[^>]*>")


@dataclass(frozen=True)
class DrawnArrow:
    source: str
    target: str
    label: str
    returns: bool
    """Whether it is drawn as one that leads back."""
    style: str


@dataclass
class Drawn:
    """What a picture shows; nodes by name, in the order of the text."""

    nodes: dict[str, list[str]] = field(default_factory=dict)
    """Lines of text."""
    colors: dict[str, str] = field(default_factory=dict)
    """What they are filled with."""
    tooltips: dict[str, str] = field(default_factory=dict)
    clusters: dict[str, list[str]] = field(default_factory=dict)
    """The lines of their titles."""
    cluster_of: dict[str, str] = field(default_factory=dict)
    """By the name of a node or a cluster the name of the cluster that it stands in directly."""
    arrows: list[DrawnArrow] = field(default_factory=list)
    below: list[str] = field(default_factory=list)
    """What stands below the picture: title, notes, legend."""
    rankdir: str = ""

    def node(self, word: str) -> str:
        """The only node that has a word in a line."""
        (found,) = [name for name, lines in self.nodes.items() if word in words(lines)]
        return found

    def titles(self) -> list[str]:
        """The first line of each node."""
        return [lines[0] for lines in self.nodes.values()]

    def ends(self) -> list[tuple[str, str]]:
        """The first words of the nodes that each arrow leads from and to."""
        names = {name: lines[0].split()[0] for name, lines in self.nodes.items()}
        return [(names[arrow.source], names[arrow.target]) for arrow in self.arrows]


def words(lines: list[str]) -> set[str]:
    return {word.rstrip(",") for line in lines for word in line.split()}


def read_dot(text: str) -> Drawn:
    """Parse DOT text; raises if it is more than one graph, or none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # pydot's own, of its parser
        (graph,) = pydot.graph_from_dot_data(text) or []
    drawn = Drawn()
    attributes = dict(_attributes(graph))
    drawn.below = [line for cell in attributes["label"][1:-1].split("</TD>") if (line := _plain(cell))]
    drawn.rankdir = attributes["rankdir"]
    _read_nodes(graph, "", drawn)
    drawn.nodes = dict(sorted(drawn.nodes.items(), key=lambda item: int(item[0][1:])))
    for edge in graph.get_edges():
        drawn.arrows.append(_arrow(edge))
    return drawn


def _read_nodes(graph: Any, around: str, drawn: Drawn) -> None:
    for node in graph.get_nodes():
        name = node.get_name()
        if name in ("node", "edge", "graph"):
            continue
        assert name not in drawn.nodes, name
        drawn.nodes[name] = _lines(node.get("label"))
        drawn.colors[name] = _text(node.get("fillcolor"))
        drawn.tooltips[name] = _text(node.get("tooltip"))
        drawn.cluster_of[name] = around
    for cluster in graph.get_subgraphs():
        name = cluster.get_name()
        drawn.clusters[name] = _lines(dict(_attributes(cluster))["label"])
        drawn.cluster_of[name] = around
        _read_nodes(cluster, name, drawn)


def _attributes(graph: Any) -> Iterator[tuple[str, str]]:
    for key, value in graph.get_attributes().items():
        yield key, _text(value)


def _arrow(edge: Any) -> DrawnArrow:
    ends = edge.get_source(), edge.get_destination()
    turned = edge.get("dir") == "back"
    style = edge.get("style") or "solid"
    if turned:
        ends = ends[::-1]
    returns = turned or (ends[0] == ends[1] and style == "dashed")
    return DrawnArrow(*ends, _text(edge.get("label")).strip(), returns, style)


def _lines(label: str) -> list[str]:
    assert label[0] == "<" and label[-1] == ">"
    return [line for part in _BREAK.split(label[1:-1]) if (line := _plain(part))]


def _plain(markup: str) -> str:
    return html.unescape(_TAG.sub("", markup).strip())


def _text(value: str | None) -> str:
    if value is None:
        return ""
    if not value.startswith('"'):
        return value
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], value[1:-1])
