"""Auxiliary losses: terms on inner layers, and on each step of a recurrent layer, train the model too."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchlens as tl

READY = tl.options.CaptureOptions(backward_ready=True)


class Recurrent(nn.Module):
    """Its states at every step are passes of one layer; it returns the last alone."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.enter = nn.Linear(1, width)
        self.recur = nn.Linear(width, width)
        self.read_out = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.zeros(len(x), self.recur.in_features)
        for step in range(x.shape[1]):
            hidden = torch.tanh(self.enter(x[:, step]) + self.recur(hidden))
        return self.read_out(hidden)


def train_classifier(steps: int = 60) -> None:
    """Each of the inner blocks has a small classifier of its own, so that it learns what helps early on."""
    model = nn.Sequential(
        nn.Sequential(nn.Linear(2, 16), nn.ReLU()),
        nn.Sequential(nn.Linear(16, 16), nn.ReLU()),
        nn.Linear(16, 3),
    )
    helpers = nn.ModuleDict({address: nn.Linear(16, 3) for address in ("0", "1")})  # for the training only
    points = torch.randn(90, 2)
    classes = (points.sum(1) > 0).long() + (points[:, 0] > points[:, 1]).long()
    optimizer = torch.optim.Adam([*model.parameters(), *helpers.parameters()], lr=0.02)

    print("step   main  at 0   at 1")
    for step in range(steps + 1):
        with tl.capture(model, save=list(helpers), capture=READY) as trace:
            scores = model(points)
        main = F.cross_entropy(scores, classes)
        inner = [F.cross_entropy(helper(trace.modules[at].out), classes) for at, helper in helpers.items()]
        optimizer.zero_grad()
        (main + 0.3 * torch.stack(inner).sum()).backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"{step:4}  {main.item():.3f}  {inner[0].item():.3f}  {inner[1].item():.3f}")
    right = (model(points).argmax(1) == classes).float().mean()
    print(f"right after {steps} steps: {right:.0%}")


def train_recurrent(steps: int = 150) -> None:
    """The net is to know the running mean of its inputs at every step, not only at the last."""
    model = Recurrent()
    inputs = torch.randn(64, 5, 1)
    means = inputs.cumsum(1) / torch.arange(1, 6).view(1, 5, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for step in range(steps + 1):
        with tl.capture(model, save=["tanh_1"], capture=READY) as trace:
            model(inputs)
        states = trace["tanh_1"].ops
        losses = [F.mse_loss(model.read_out(op.out), means[:, at]) for at, op in enumerate(states)]
        optimizer.zero_grad()
        torch.stack(losses).mean().backward()
        optimizer.step()
        if step in (0, steps):
            at_steps = ", ".join(f"{loss.item():.3f}" for loss in losses)
            print(f"step {step:3}, losses at the {len(states)} passes of tanh_1: {at_steps}")


def main() -> None:
    torch.manual_seed(0)
    train_classifier()
    train_recurrent()


if __name__ == "__main__":
    main()
