"""Where time, FLOPs and activations of a model go, module by module, in pandas."""

import pandas as pd
import torch
from torch import nn

import torchlens as tl


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.stages = nn.ModuleList(
            nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()) for _ in range(3)
        )
        self.head = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for stage in self.stages:
            x = x + stage(x)
        return self.head(x.mean((-1, -2)))


def main() -> None:
    torch.manual_seed(0)
    trace = tl.trace(Network().eval(), torch.randn(4, 3, 32, 32), save=[])
    ops = trace.to_pandas()
    print(f"{len(ops)} ops; flops is {ops['flops'].dtype}, type is {ops['type'].dtype}")

    calls = ops[ops["kind"] == "call"]
    by_type = calls.groupby("type", observed=True)[["duration_ns", "flops", "nbytes"]].sum()
    print(by_type.sort_values("flops", ascending=False).head(4).to_string())

    # A module with all that is in it: the first two parts of the address.
    top = calls["module"].astype(str).str.split(".").str[:2].str.join(".").replace("", "(root)")
    shares = calls.groupby(top)["flops"].sum() / calls["flops"].sum()
    print((shares * 100).round(1).rename("% of FLOPs").to_string())

    # Parameters beside the ops that used them: lists become rows, then a join.
    used = calls[["label", "params", "duration_ns"]].explode("params").dropna(subset="params")
    params = trace.to_pandas("params")
    table = pd.merge(used.astype({"params": str}), params, left_on="params", right_on="address")
    largest = table.sort_values("numel", ascending=False).iloc[0]
    print(f"largest parameter: {largest['address']} of shape {list(largest['shape'])}, in {largest['label']}")


if __name__ == "__main__":
    main()
