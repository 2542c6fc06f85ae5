"""A linear probe at each depth of a frozen backbone: where does a feature of the input become readable?"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchlens as tl

SITES = ["norm", "blocks.0", "blocks.1", "blocks.2"]


class Backbone(nn.Module):
    """Stands for a model that was trained before; here it has random weights."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(width if at else 4, width), nn.Tanh()) for at in range(3)
        )
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def fit(features: Tensor, wanted: Tensor, steps: int = 200) -> float:
    """Train a probe on features that no gradient flows through; how many it gets right."""
    probe = nn.Linear(features.shape[1], 2)
    optimizer = torch.optim.Adam(probe.parameters(), lr=0.05)
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(probe(features), wanted).backward()
        optimizer.step()
    return float((probe(features).argmax(1) == wanted).float().mean())


def main() -> None:
    torch.manual_seed(0)
    backbone = Backbone().eval()  # so that the statistics of the normalization stay as they are
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    inputs = torch.randn(200, 4)
    wanted = (inputs[:, 0] * inputs[:, 1] > 0).long()  # no linear function of the input tells it

    # `extract` has no options: gradients are off around it. The forward ends after the last site.
    with torch.no_grad():
        features = tl.extract(backbone, inputs, SITES)
    for site, value in features.items():
        print(f"probe at {site:8}: {fit(value, wanted):.0%} right, features {tuple(value.shape)}")

    # The same from a trace, which has more to say of the place: `inference_only` turns gradients off.
    options = tl.options.CaptureOptions(inference_only=True)
    trace = tl.trace(backbone, inputs, save=SITES, stop_after="blocks.2", capture=options)
    same = all(torch.equal(trace.modules[site].out, features[site]) for site in SITES)
    print(f"a trace that ended after {trace.halted_at} gives the same: {same}")

    unchanged = all(torch.equal(value, before[name]) for name, value in backbone.state_dict().items())
    gradients = [name for name, parameter in backbone.named_parameters() if parameter.grad is not None]
    print(f"backbone unchanged: {unchanged}; parameters with a gradient: {len(gradients)}")


if __name__ == "__main__":
    main()
