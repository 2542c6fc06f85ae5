"""Questions to the graph of a U-Net: its ways, its bottleneck, what a parameter reaches, its longest path."""

import networkx as nx
import torch
import torch.nn.functional as F
from torch import nn

import torchlens as tl


class Block(nn.Sequential):
    def __init__(self, inside: int, outside: int) -> None:
        super().__init__(nn.Conv2d(inside, outside, 3, padding=1), nn.ReLU())


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2, self.bottom = Block(1, 4), Block(4, 8), Block(8, 8)
        self.up2, self.up1 = Block(16, 4), Block(8, 4)
        self.head, self.side = nn.Conv2d(4, 1, 1), nn.Conv2d(8, 1, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        fine = self.down1(x)
        coarse = self.down2(F.max_pool2d(fine, 2))
        x = self.bottom(F.max_pool2d(coarse, 2))
        x = self.up2(torch.cat([F.interpolate(x, scale_factor=2), coarse], dim=1))
        x = self.up1(torch.cat([F.interpolate(x, scale_factor=2), fine], dim=1))
        return self.head(x), self.side(coarse)


def joined(graph: nx.DiGraph, attribute: str) -> nx.DiGraph:
    """The graph with one node for all ops that agree in an attribute."""
    name_of = dict(graph.nodes(data=attribute))
    small = nx.DiGraph()
    small.add_nodes_from(name_of.values())
    small.add_edges_from((name_of[a], name_of[b]) for a, b in graph.edges if name_of[a] != name_of[b])
    return small


def main() -> None:
    torch.manual_seed(0)
    trace = tl.trace(UNet().eval(), torch.randn(1, 1, 16, 16))
    graph = trace.graph

    # Each skip connection adds a way from the input to the first output.
    ways = list(nx.all_simple_paths(graph, "input_1:1", "output_1:1"))
    print(f"{len(ways)} ways through, with {', '.join(str(len(way)) for way in sorted(ways, key=len))} ops")

    # What lies behind a parameter, and what of the network it cannot reach.
    (reader,) = [op for op, used in graph.nodes(data="params") if "bottom.0.weight" in used]
    reached = nx.descendants(graph, reader) | {reader}
    print(f"bottom.0.weight is read by {reader} and reaches {len(reached)} of {len(graph)} ops")

    # Ops that all data passes on its way to the first output: its dominators.
    above = nx.immediate_dominators(graph, "input_1:1")
    gates = ["output_1:1"]
    while gates[-1] != "input_1:1":
        gates.append(above[gates[-1]])
    print(f"all data passes {' -> '.join(reversed(gates))}")

    # The chain of ops with the most FLOPs: no machine is faster than this.
    priced = graph.copy()
    for _, op, data in priced.edges(data=True):
        data["flops"] = priced.nodes[op]["flops"] or 0
    longest = nx.dag_longest_path_length(priced, weight="flops")
    total = sum(flops or 0 for _, flops in graph.nodes(data="flops"))
    print(f"the longest path has {longest:,} of {total:,} FLOPs")

    blocks = joined(graph, "module")
    print(f"the root feeds {', '.join(sorted(filter(None, blocks.successors(''))))}")


if __name__ == "__main__":
    main()
