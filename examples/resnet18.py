"""ResNet-18 of torchvision: a module used twice, residual edges, and values that were overwritten in place.

Needs torchvision (`pip install ".[zoo]"` in a clone). The weights are random: nothing is downloaded.
"""

import torch

import torchlens as tl

try:
    import torchvision
except RuntimeError:  # a torchvision built for GPUs beside a torch for CPUs: these two operators are missing
    for name in ("nms", "qnms"):
        torch.library.define(
            f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        )
    import torchvision


def main() -> None:
    torch.manual_seed(0)
    model = torchvision.models.resnet18().eval()
    trace = tl.trace(model, torch.randn(1, 3, 224, 224))
    print(trace.summary())

    # One nn.ReLU runs at two places of the block: two module calls, so its op is one layer with two passes.
    relu = trace.modules["layer1.0.relu"]
    layer = relu.layers[0]
    print(f"\n{relu.address} was called {relu.num_calls} times: {', '.join(op.label for op in layer.ops)}")

    # The residual sum has two parents: what the block computed, and what entered it.
    residual = next(op for op in trace.modules["layer1.0"].ops if op.operation == "add")
    print(f"{residual.label} is {residual.func_name}, of {' and '.join(op.label for op in residual.parents)}")
    print(f"it stands at {residual.call_site[-1]}")

    # That ReLU works in place, so it overwrote what batch norm gave. Both values can be read.
    normed, rectified = layer.ops[0].parents[0], layer.ops[0]
    print(f"least of {normed.label}: {normed.out.min():.2f}, of {rectified.label}: {rectified.out.min():.2f}")

    costly = max(trace.ops, key=lambda op: op.flops or 0)
    print(f"most FLOPs: {costly.label} of {costly.module.address}, {costly.flops:,}")


if __name__ == "__main__":
    main()
