"""torch_geometric: graph networks on small random graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric import nn as gnn

from tests.zoo.entry import Entry, Inputs

NODES, EDGES, WIDTH = 12, 30, 8


def edges() -> Tensor:
    return torch.randint(0, NODES, (2, EDGES))


def graph() -> Inputs:
    return Inputs((torch.randn(NODES, WIDTH), edges()))


def graph_of(**features: tuple[int, ...]) -> Callable[[], Inputs]:
    """A graph with further features of its edges or nodes."""

    def make() -> Inputs:
        more = {key: torch.randn(shape) for key, shape in features.items()}
        return Inputs((torch.randn(NODES, WIDTH), edges()), more)

    return make


def typed_graph() -> Inputs:
    return Inputs((torch.randn(NODES, WIDTH), edges(), torch.randint(0, 3, (EDGES,))))


def batched_graph() -> Inputs:
    return Inputs((torch.randn(NODES, WIDTH), edges()), {"batch": torch.arange(NODES) // 6})


def cloud() -> Inputs:
    """Atoms: numbers and places."""
    return Inputs((torch.randint(1, 9, (NODES,)), torch.randn(NODES, 3)), {"batch": torch.arange(NODES) // 6})


def neighbours(places: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
    """The pairs of atoms of one molecule within 3; torch_geometric's own search is an extension in C++."""
    distance = torch.cdist(places, places)
    near = (distance < 3) & (batch[:, None] == batch) & ~torch.eye(len(batch), dtype=torch.bool)
    pairs = near.nonzero().T
    return pairs, distance[pairs[0], pairs[1]]


def entry(
    name: str, build: Callable[[], nn.Module], inputs: Callable[[], Inputs] = graph, **facts: Any
) -> Entry:
    return Entry(name, "torch_geometric", "graph", lambda: build().eval(), inputs, **facts)


def stacked(conv: Callable[[int, int], nn.Module], arguments: str = "x, edge_index") -> nn.Module:
    """Two layers and a readout."""
    return gnn.Sequential(
        arguments,
        [
            (conv(WIDTH, 16), f"{arguments} -> x"),
            nn.ReLU(),
            (conv(16, 4), f"{arguments} -> x"),
            (lambda x: gnn.global_mean_pool(x, None), "x -> x"),
        ],
    )


class Pooled(nn.Module):
    """A layer, and the nodes that a score keeps."""

    def __init__(self, pool: Callable[[int, float], nn.Module]) -> None:
        super().__init__()
        self.layer = gnn.GraphConv(WIDTH, 16)
        self.pool = pool(16, 0.5)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.pool(self.layer(x, edge_index), edge_index, batch=batch)[0]


class Recurrent(nn.Module):
    """A gated graph layer, then an LSTM over the nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.gated = gnn.GatedGraphConv(16, 3)
        self.readout = gnn.aggr.LSTMAggregation(16, 8)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.readout(self.gated(x, edge_index), batch)


# fmt: off
ENTRIES = [
    entry("AttentiveFP", lambda: gnn.AttentiveFP(WIDTH, 16, 4, 5, 2, 2), lambda: Inputs((torch.randn(NODES,
       WIDTH), edges(), torch.randn(EDGES, 5), torch.arange(NODES) // 6))),
    entry("ChebConv", lambda: stacked(lambda a, b: gnn.ChebConv(a, b, K=3))),
    entry("EdgeCNN", lambda: gnn.EdgeCNN(WIDTH, 16, 2, 4)),
    entry("GAT", lambda: gnn.GAT(WIDTH, 16, 2, 4, heads=2)),
    entry("GATv2Conv", lambda: stacked(lambda a, b: gnn.GATv2Conv(a, b, heads=2, concat=False))),
    entry("GCN", lambda: gnn.GCN(WIDTH, 16, 2, 4)),
    entry("GIN", lambda: gnn.GIN(WIDTH, 16, 2, 4)),
    entry("GINEConv", lambda: gnn.GINEConv(nn.Sequential(nn.Linear(WIDTH, 16), nn.ReLU()), edge_dim=5),
       graph_of(edge_attr=(EDGES, 5))),
    entry("GPSConv", lambda: gnn.GPSConv(WIDTH, gnn.GCNConv(WIDTH, WIDTH), heads=2), batched_graph),
    entry("GraphSAGE", lambda: gnn.GraphSAGE(WIDTH, 16, 2, 4)),
    entry("Graph U-Net", lambda: gnn.GraphUNet(WIDTH, 16, 4, depth=2)),
    entry("LightGCN", lambda: gnn.LightGCN(NODES, 8, 2), lambda: Inputs((edges(),))),
    entry("PNA", lambda: gnn.PNA(WIDTH, 16, 2, 4, aggregators=["mean", "max", "std"], scalers=["identity",
       "amplification"], deg=torch.tensor([0, 3, 5, 4]))),
    entry("PointNet", lambda: gnn.PointNetConv(nn.Linear(WIDTH + 3, 16)), lambda: Inputs((torch.randn(NODES,
       WIDTH), torch.randn(NODES, 3), edges()))),
    entry("RGCNConv", lambda: gnn.RGCNConv(WIDTH, 4, num_relations=3), typed_graph),
    entry("Gated graph layer and LSTM", Recurrent, batched_graph),
    entry("SAGPooling", lambda: Pooled(gnn.SAGPooling), batched_graph),
    entry("SchNet", lambda: gnn.SchNet(16, 16, 2, 8, cutoff=3.0, interaction_graph=neighbours), cloud),
    entry("DeepGCN layer", lambda: gnn.DeepGCNLayer(gnn.GENConv(WIDTH, WIDTH), nn.LayerNorm(WIDTH),
       nn.ReLU())),
    entry("TopKPooling", lambda: Pooled(gnn.TopKPooling), batched_graph),
    entry("TransformerConv", lambda: stacked(lambda a, b: gnn.TransformerConv(a, b, heads=2,
       concat=False))),
]
# fmt: on
