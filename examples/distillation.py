"""Distillation: a small student learns to have the teacher's inner values, layer by layer, and its output."""

import torch
import torch.nn.functional as F
from torch import nn

import torchlens as tl

PAIRS = {"2": "0", "4": "2"}
"""Modules of the teacher, and those of the student that are to give the same."""


def build_teacher() -> nn.Sequential:
    """Stands for a model that was trained before; here it has random weights, and large ones."""
    layers = [nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh()]
    teacher = nn.Sequential(*layers, nn.Linear(16, 3)).eval()
    with torch.no_grad():
        for parameter in teacher.parameters():
            parameter *= 2
    return teacher


def build_student() -> nn.Sequential:
    layers = [nn.Linear(6, 16), nn.ReLU(inplace=True), nn.Linear(16, 16), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.Linear(16, 3))


def main() -> None:
    torch.manual_seed(0)
    teacher, student = build_teacher(), build_student()
    inputs = torch.randn(128, 6)

    # The teacher runs once, without gradients. Its output is the value of its last module.
    with torch.no_grad():
        targets = tl.extract(teacher, inputs, [*PAIRS, "6"])

    optimizer = torch.optim.Adam(student.parameters(), lr=0.02)
    ready = tl.options.CaptureOptions(backward_ready=True)
    for step in range(151):
        # The student's ReLUs overwrite these values; `backward_ready` keeps what was there, and connected.
        with tl.capture(student, save=list(PAIRS.values()), capture=ready) as trace:
            output = student(inputs)
        losses = [F.mse_loss(trace.modules[mine].out, targets[its]) for its, mine in PAIRS.items()]
        losses.append(F.mse_loss(output, targets["6"]))
        optimizer.zero_grad()
        torch.stack(losses).sum().backward()
        optimizer.step()
        if step % 50 == 0:
            first, second, last = (loss.item() for loss in losses)
            print(f"step {step:3}  distance at 0: {first:.3f}, at 2: {second:.3f}, of outputs: {last:.3f}")

    print(f"teacher has gradients: {any(each.grad is not None for each in teacher.parameters())}")


if __name__ == "__main__":
    main()
