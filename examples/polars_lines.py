"""Which lines of the code take the time and hold the activations, in polars."""

from pathlib import Path

import polars as pl
import torch
from torch import Tensor, nn

import torchlens as tl


class Mixer(nn.Module):
    def __init__(self, tokens: int = 16, width: int = 32) -> None:
        super().__init__()
        self.across = nn.Parameter(torch.randn(tokens, tokens) / tokens)
        self.inside = nn.Parameter(torch.randn(width, width) / width)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(4):
            x = x + torch.tanh(self.across @ x)
            x = x + torch.tanh(x @ self.inside)
        return x / x.norm(dim=-1, keepdim=True)


def main() -> None:
    torch.manual_seed(0)
    trace = tl.trace(Mixer(), torch.randn(8, 16, 32))
    ops = trace.to_polars()

    lines = (
        ops.filter(pl.col("kind") == "call")
        .group_by("file", "line")
        .agg(
            pl.len().alias("calls"),
            pl.col("type").unique(maintain_order=True),
            pl.col("flops").sum(),
            (pl.col("nbytes").sum() / 1024).alias("KiB"),
            (pl.col("duration_ns").sum() / 1000).alias("us"),
        )
        .sort("line")
    )
    for file, line, calls, types, flops, kib, microseconds in lines.iter_rows():
        name = Path(file).name
        print(f"{name}:{line}  {calls} calls of {', '.join(types)}: {flops:,} FLOPs, {kib:.0f} KiB")
        assert microseconds > 0

    # Ops whose output is read far away keep memory busy: the longest edges.
    edges = trace.to_polars("edges").with_columns(span=pl.col("child_index") - pl.col("parent_index"))
    longest = edges.sort("span", descending=True).row(0, named=True)
    print(f"longest edge: {longest['parent']} is read by {longest['child']}, {longest['span']} ops later")

    # The frames of each call site join by its number.
    norms = ops.filter(pl.col("type").str.contains("norm"))
    site = norms.join(trace.to_polars("frames"), on="call_site").sort("depth")
    print("norm was called through", " > ".join(site["function"]))


if __name__ == "__main__":
    main()
