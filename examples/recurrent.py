"""A recurrent net steps through time: one layer for each line of the loop, one pass for each step."""

import torch
from torch import Tensor, nn

import torchlens as tl

STEPS = 6


class Recurrent(nn.Module):
    """A cell written by hand, which keeps all its states in one tensor."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.enter = nn.Linear(width, width)
        self.recur = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.zeros_like(x[:, 0])
        states = torch.zeros_like(x)
        for t in range(x.shape[1]):
            hidden = torch.tanh(self.enter(x[:, t]) + self.recur(hidden))
            states[:, t] = hidden
        return states


def main() -> None:
    torch.manual_seed(0)
    trace = tl.trace(Recurrent(), torch.randn(2, STEPS, 8))
    print(trace.summary())

    tanh = trace.layers["tanh_1"]
    print(f"\n{tanh.layer_label} has {tanh.num_passes} passes; it stands at {tanh.ops[0].call_site[-1]}")
    for op in tanh.ops[:3]:
        print(f"  {op.label} read {op.parents[0].label} and has norm {op.out.norm():.3f}")

    # Each step writes a slice of one buffer; reading the buffer at a step shows it as it was then.
    write = trace.layers["setitem_1"]
    filled = [int(op.out[0].abs().sum(-1).count_nonzero()) for op in write.ops]
    print(f"{write.layer_label} wrote in place; states filled after each pass: {filled}")
    print(f"bytes copied to keep these versions: {trace.copied_bytes}")

    # Back through time: from the last state to the first input, along the edges.
    op, path = tanh.ops[-1], []
    while op.parents:
        path.append(op.label)
        op = op.parents[-1]
    print(f"back from the last step: {' <- '.join(path[:7])} <- ...")

    gradient = torch.autograd.grad(trace["tanh_1:6"].out.sum(), trace["tanh_1:1"].out)[0]
    print(f"gradient of the last state by the first: norm {gradient.norm():.4f}")


if __name__ == "__main__":
    main()
